"""What the compatibility tests run on, fetched by the ordinary clients (pip,
apt-get) into target/compat and checked by hash. What cannot be had ends the
test as failed."""
import hashlib
import os
import platform
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "target/compat")
RELEASE = os.path.join(ROOT, "target/release")


def fail(text):
    sys.exit(f"FAIL: {text}")


def ready():
    """The library and the simulated driver, or the end."""
    if platform.machine() != "x86_64":
        fail(f"these tests are for x86_64, not {platform.machine()}")
    found = [os.path.join(RELEASE, name) for name in ("libmemcuda.so", "sim/libcuda.so.1")]
    for path in found:
        if not os.path.exists(path):
            fail(f"{path} is missing; build it first (make build)")
    return found


def run(command, **settings):
    """A command that must succeed; what it printed."""
    try:
        done = subprocess.run(command, text=True, capture_output=True, **settings)
    except OSError as error:
        fail(f"{command[0]}: {error}")
    if done.returncode:
        fail(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def new_files(folder, fetch):
    """The names that `fetch` adds to a folder."""
    before = set(os.listdir(folder))
    fetch()
    return set(os.listdir(folder)) - before


def fetched(folder, name, sha256, fetch):
    """The file of this hash in a folder, fetched unless it is there."""
    os.makedirs(folder, exist_ok=True)
    for file in os.listdir(folder):
        path = os.path.join(folder, file)
        if os.path.isfile(path) and digest(path) == sha256:
            return path
    for file in new_files(folder, fetch):
        path = os.path.join(folder, file)
        if digest(path) == sha256:
            return path
        os.remove(path)
    fail(f"{name}: what was fetched has not the hash {sha256}")


def wheel(package, version, sha256, *options):
    """The folder of an unpacked wheel; with options of pip, one for elsewhere."""
    folder = os.path.join(FOLDER, "wheels")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
               "-d", folder, *options, f"{package}=={version}"]
    path = fetched(folder, f"{package} {version}", sha256, lambda: run(command))
    unpacked = os.path.join(folder, f"{package}-{version}")
    if not os.path.isdir(unpacked):
        run([sys.executable, "-m", "zipfile", "-e", path, unpacked])
    return unpacked


def unpacked(archive, suite, packages):
    """The folder into which packages (name, version, hash) of an archive of the
    apt kind are unpacked."""
    folder = os.path.join(FOLDER, suite)
    lists = os.path.join(folder, "lists")
    debs = os.path.join(folder, "debs")
    os.makedirs(os.path.join(lists, "partial"), exist_ok=True)
    os.makedirs(debs, exist_ok=True)
    source = os.path.join(folder, "sources.list")
    with open(source, "w") as file:
        # The hashes here say what is trusted.
        file.write(f"deb [arch=amd64 trusted=yes] {archive} {suite} main\n")
    settings = {"Dir::Etc::SourceList": source, "Dir::Etc::SourceParts": "/dev/null",
                "Dir::State::Lists": lists, "Dir::Cache": folder, "APT::Sandbox::User": "root",
                "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
                "Acquire::Languages": "none"}
    apt = ["apt-get", "-q"] + [word for item in settings.items() for word in ("-o", "=".join(item))]

    def fetch(name, version):
        run(apt + ["update"])
        run(apt + ["download", f"{name}={version}"], cwd=debs)

    root = os.path.join(folder, "root")
    for name, version, sha256 in packages:
        deb = fetched(debs, f"{name} {version}", sha256, lambda: fetch(name, version))
        run(["dpkg-deb", "-x", deb, root])
    return root
