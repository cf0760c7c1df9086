"""Torch's two allocator libraries, of one wheel of each release: fetched by pip, a wheel
at a time, of which only these two stay in target/compat. Checks all by hash, and reads
where the methods of the allocator stand in its vtable; loads nothing."""
import os
import re
import shutil
import sys
import zipfile
from dataclasses import dataclass

from fetch import FOLDER, digest, fail, run

NATIVE = "_ZTVN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE"
ASYNC = "_ZTVN3c104cuda20CUDACachingAllocator15CudaMallocAsync24CudaMallocAsyncAllocatorE"
# Words before the first method: offset to top, type information.
HEADER = 2
FILES = ["libc10.so", "libc10_cuda.so"]
# Release, its CUDA, the wheel's Python, hashes: of the wheel, and of the two files in it.
PINNED = [
    ("2.1.0", 12, "3.11", "2224622407ca52611cbc5b628106fde22ed8e679031f5a99ce286629fc696128",
     "1224972ba3a83a84ea7b374fb454cb42a2f70cfe73cf7ed5cc52bfcde2bddab7",
     "14af659449a0ea8536ad3ca1c1476618f513bc969d9b2b56d23d1dddf6f4f5bf"),
    ("2.4.0", 12, "3.12", "997084a0f9784d2a89095a6dc67c7925e21bf25dea0b3d069b41195016ccfcbb",
     "ff4eddb5dec320702e7cf1a35af3a83cf2fcce29c68e4bfeeb0e0bfd48724041",
     "c675d3fb407815ae57a8eeff0a369dea79c63b10100440e8beac29d8ab33a4c1"),
    ("2.6.0", 12, "3.12", "2bb8987f3bb1ef2675897034402373ddfc8f5ef0e156e2d8cfc47cacafdda4a9",
     "9e8b46af9a5b5f1bf3200f2aabc3376597f1fb4787a179428e8c91f7253af78d",
     "99caf7bd0183e53103a28a0d27d6c54e8be338dcf71e4444e51b1c9bf529ef11"),
    ("2.7.0", 12, "3.12", "15aab3e31c16feb12ae0a88dba3434a458874636f360c567caa6a91f6bfba481",
     "e03523b398502fb29ac67ca0e69b5db16cae194a636d5e6dc961474839907ab6",
     "128fb12dbc562df24ad3e623b19a3b4214186e36f6b020f40d809a818adec572"),
    ("2.9.1", 12, "3.12", "27331cd902fb4322252657f3902adf1c4f6acad9dcad81d8df3ae14c7c4f07c4",
     "7a772df91dd662f647372cb32059f0c3bd6fb2fe9cb96f00b40c2c802cba28b8",
     "2f6027b42aee93b5db3f814b92dfbe179074cc928eebad85804b6a266214d5f7"),
    ("2.10.0", 12, "3.12", "98c01b8bb5e3240426dcde1446eed6f40c778091c8544767ef1168fc663a05a6",
     "10976d2a98e0f9807e8c1f44d930c5ec4e07af7049cd02cc48d5177f952a7dfb",
     "644ababdead4dd25a1564e360feeb6966ac5629f48b47843484e32f2499efbae"),
    ("2.11.0", 13, "3.12", "0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756",
     "be5e17cd7752a6af003978706379384c3108f6b68916bb1949e610f6397bb640",
     "962b69f3dec6cacf6e7d5f9d4c79becd34ca379d7abd2571b2eb4c1c153d168b"),
    ("2.12.1", 13, "3.12", "649e4ced014ba646f76f8cb9c9726735a6323eb321b7919f942790a923f90921",
     "21d0b5b3dba033f7c3f182caf0ece8c380b72ce792873cf3251c98c0ab3bdd76",
     "7e1630f04e719eae42391002487ab408599b3eb973bc839ca7ee5d996efd33e6"),
    ("2.13.0", 13, "3.12", "796633c4cdf0fe2cdced72d8f88f22e73dbcfce83132763162f6d4bff13b820b",
     "b83ea50e9171c7e3455c19f9ff2c7d21d457a7b8231e9c4ea1b6e032ae1156d5",
     "54da13d79545600a1822a72b179a58295c1915f8ea0194a89066437c3ac48c1a"),
    ("2.15.0", 13, "3.12", "6d8c86f4e33a9f12a58149bd9b0d64351632b8eb44479be8ff85e5389932dd79",
     "bb1fe5b9b16d125c2725891fd124ee50b6264691981f0e4aafb371549e2c6e59",
     "b3bfc48277fb6c1e451c1be9101bb3a214445b14819be470da124dca54ab68c0"),
]


@dataclass
class Release:
    version: str
    cuda: int
    library: str
    # How many words the native allocator's vtable has, and which one each method is.
    words: int
    methods: dict

    @property
    def maps_pages(self):
        """Torch whose expandable segments the native profile takes."""
        return tuple(map(int, self.version.split(".")[:2])) >= (2, 11)


def fetch(version, python, sha256, folder):
    """Takes the two files out of the wheel, which is up to 0.9 GB and does not stay."""
    wheels = os.path.join(folder, "wheel")
    os.makedirs(wheels, exist_ok=True)
    wanted = os.path.join(wheels, "requirements.txt")
    with open(wanted, "w") as file:
        file.write(f"torch=={version} --hash=sha256:{sha256}\n")
    print(f"fetching torch {version}", file=sys.stderr, flush=True)
    run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--only-binary=:all:",
         "--implementation", "cp", "--python-version", python, "--platform", "manylinux_2_28_x86_64",
         "--platform", "manylinux1_x86_64", "-d", wheels, "-r", wanted])
    wheel = next(name for name in os.listdir(wheels) if name.endswith(".whl"))
    with zipfile.ZipFile(os.path.join(wheels, wheel)) as archive:
        for name in FILES:
            with open(os.path.join(folder, name), "wb") as file:
                file.write(archive.read(f"torch/lib/{name}"))
    shutil.rmtree(wheels)


def vtable(library, name):
    """The symbols in a vtable's words, None where a word is no function; None: no such vtable."""
    symbols, place = {}, None
    for line in run(["nm", "-S", library]).splitlines():
        fields = line.split()
        if len(fields) != 4:
            continue
        symbols.setdefault(int(fields[0], 16), fields[3])
        if fields[3] == name:
            place = int(fields[0], 16), int(fields[1], 16) // 8
    if place is None:
        return None
    # "OFFSET INFO R_X86_64_RELATIVE ADDRESS" or "OFFSET INFO R_X86_64_64 VALUE NAME + 0".
    words = {}
    for line in run(["readelf", "-rW", library]).splitlines():
        fields = line.split()
        if "R_X86_64_RELATIVE" in fields:
            words[int(fields[0], 16)] = symbols.get(int(fields[3], 16))
        elif "R_X86_64_64" in fields:
            words[int(fields[0], 16)] = fields[4].split("@")[0]
    start, count = place
    return [words.get(start + 8 * i) for i in range(count)]


def methods(table, names):
    """Which words of a table are methods of these names; a name that it lacks is left out."""
    found = {}
    for name in names:
        # A member's own name, the number of its letters, and what it belongs to.
        member = re.compile(rf"_ZNK?[^ ]*Allocator{len(name)}{name}E")
        places = [i for i, symbol in enumerate(table) if symbol and member.match(symbol)]
        if name == "recordStream":
            # That of c10::Stream calls this one.
            places = [i for i in places if "CUDAStream" in table[i]]
        if len(places) > 1:
            fail(f"{name} is in the vtable {len(places)} times")
        if places:
            found[name] = places[0]
    return found


def releases(versions, names):
    """These releases, or all, with the words of their methods of these names."""
    unknown = set(versions) - {version for version, *_ in PINNED}
    if unknown:
        fail(f"no such release here: {', '.join(sorted(unknown))}")
    for version, cuda, python, wheel, *hashes in PINNED:
        if versions and version not in versions:
            continue
        folder = os.path.join(FOLDER, "torch", version)
        paths = [os.path.join(folder, name) for name in FILES]
        if not all(os.path.exists(path) and digest(path) == pin for path, pin in zip(paths, hashes)):
            fetch(version, python, wheel, folder)
        for path, pin in zip(paths, hashes):
            if digest(path) != pin:
                fail(f"{path} has not the hash {pin}")
        native, other = (vtable(paths[1], name) for name in (NATIVE, ASYNC))
        found = methods(native or fail(f"torch {version} has no native allocator"), names)
        if methods(other, names) != found:
            fail(f"torch {version}: the words of its two allocators differ")
        yield Release(version, cuda, paths[1], len(native), found)
