#!/usr/bin/env python3
"""Runs the conformance program on this machine's GPU: on the plain driver, on the
pool, and with one handle per allocation (MEMCUDA_POLICY=direct), and compares.

    tests/gpu/conformance.py --out DIR [--binary FILE] [--library FILE] [--record | --only PREFIX]

DIR gets bare.txt, pool.txt and direct.txt, each with a head of GPU, driver,
CUDA version and date, and list.txt. --record also writes them where the
repository keeps them: bare.txt is the golden file of this GPU and driver. --only
runs and compares the cases whose names begin so. The cases for two devices need
two; elsewhere they say so and are not compared.

Ends with 0 if the plain driver answers as the golden file says, where there is
one, and the pool as that and docs/differences.md say; with 1 otherwise.
"""

import argparse
import datetime
import glob
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CASES = os.path.join(ROOT, "tests/conformance")
sys.path.insert(0, CASES)
import compare  # noqa: E402

RUNS = [("bare", None), ("pool", {}), ("direct", {"MEMCUDA_POLICY": "direct"})]


def runtime_folder():
    """Where a libcudart lies that the loader would not find by itself, or None."""
    patterns = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib"]
    patterns += [os.path.join(p, "nvidia/*/lib") for p in sys.path if p.endswith("-packages")]
    found = [f for p in patterns for f in glob.glob(os.path.join(p, "libcudart.so.1[23]"))]
    newest = max(found, key=lambda file: int(file.rsplit(".", 1)[1]), default=None)
    return newest and os.path.dirname(newest)


def environment(library, extra):
    clean = {n: v for n, v in os.environ.items() if not n.startswith("MEMCUDA_") and n != "LD_PRELOAD"}
    folders = [f for f in (clean.get("LD_LIBRARY_PATH"), runtime_folder()) if f]
    if folders:
        clean["LD_LIBRARY_PATH"] = ":".join(folders)
    if extra is not None:
        clean.update(extra, LD_PRELOAD=library)
    return clean


def ask_gpu(what):
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"FAIL: this needs an NVIDIA GPU and nvidia-smi: {error}")


def cuda_version():
    listing = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"CUDA Version: *([\d.]+)", listing)
    return found[1] if found else "unknown"


def run(binary, only, environ, head, path):
    """One run of the cases; seconds that it took."""
    began = time.monotonic()
    # The library says on stderr what it cannot do; that is not an answer.
    with open(path.replace(".txt", ".stderr"), "w") as said:
        command = [binary, "--only", only]
        output = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=said, text=True, timeout=540)
    if output.returncode != 0:
        sys.exit(f"FAIL: {binary} ended with {output.returncode}; see {path.replace('.txt', '.stderr')}")
    with open(path, "w") as file:
        file.write(head + output.stdout)
    return time.monotonic() - began


def judge(expected, golden, output, allowed):
    """Names of the cases that are wrong, printed; those that no golden run covers left out."""
    ran = [n for n in expected if not output.get(n, "").startswith("needs ")]
    wrong = set()
    for name, lines in compare.errors(ran, golden, {n: output[n] for n in ran if n in output}, allowed):
        wrong.add(name)
        for line in lines:
            print(f"{name}: {line}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--binary")
    parser.add_argument("--library", default=os.path.join(ROOT, "target/release/libmemcuda.so"))
    parser.add_argument("--skip-direct", action="store_true",
                        help="leave out the run under MEMCUDA_POLICY=direct, which is counted and not judged")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--record", action="store_true")
    which.add_argument("--only", metavar="PREFIX", default="")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    if not os.path.exists(options.library):
        sys.exit(f"FAIL: {options.library} is missing; build it first (make build)")
    binary = os.path.abspath(options.binary or os.path.join(options.out, "conformance"))
    if not options.binary:
        subprocess.run([os.path.join(CASES, "build.sh"), binary], check=True)

    name, driver = ask_gpu("name"), ask_gpu("driver_version")
    today = datetime.datetime.now(datetime.timezone.utc).date()
    of = f"{name}, driver {driver}, CUDA {cuda_version()}, {today}"
    key = f"{name.split()[-1].lower()}-{driver}"
    path = lambda run_name: os.path.join(options.out, run_name + ".txt")  # noqa: E731
    with open(path("list"), "w") as file:
        subprocess.run([binary, "--list"], stdout=file, check=True)
    took, found = {}, {}
    runs = [(n, extra) for n, extra in RUNS if n != "direct" or not options.skip_direct]
    for run_name, extra in runs:
        library = os.path.abspath(options.library)
        head = f"# {of}\n# {run_name}\n"
        took[run_name] = run(binary, options.only, environment(library, extra), head, path(run_name))
        found[run_name] = compare.cases(path(run_name))

    expected = [n for n in compare.listed(path("list"))[0] if n.startswith(options.only)]
    differing = {n: sum(found[n].get(c) != found["bare"].get(c) for c in expected) for n, _ in runs}
    wrong = {}
    if options.record:
        for run_name, _ in runs:
            place = "golden" if run_name == "bare" else "recorded"
            suffix = "" if run_name == "bare" else f"-{run_name}"
            os.makedirs(os.path.join(CASES, place), exist_ok=True)
            with open(path(run_name)) as source, open(f"{CASES}/{place}/{key}{suffix}.txt", "w") as target:
                target.write(source.read())
    golden_file = f"{CASES}/golden/{key}.txt"
    golden = compare.cases(golden_file) if os.path.exists(golden_file) else None
    if golden is None:
        print(f"no golden file for {key}: the plain driver's answers of this run stand for it")
    wrong["bare"] = judge(expected, golden or found["bare"], found["bare"], {})
    book = os.path.join(ROOT, "docs/differences.md")
    allowed = compare.differences(book) if os.path.exists(book) else {}
    allowed = {n: d for n, d in allowed.items() if n in expected}
    wrong["pool"] = judge(expected, golden or found["bare"], found["pool"], allowed)

    print(f"\n{of}")
    print(f"{'run':8} {'cases':>6} {'seconds':>8} {'not as bare':>12} {'unexplained':>12}")
    for run_name, _ in runs:
        ran = sum(not text.startswith("needs ") for text in found[run_name].values())
        told = len(wrong[run_name]) if run_name in wrong else "-"
        print(f"{run_name:8} {ran:6} {took[run_name]:8.1f} {differing[run_name]:12} {told:>12}")
    if all(text.startswith("needs ") for text in found["bare"].values()):
        sys.exit(f"FAIL: none of the {len(found['bare'])} cases could run here")
    failed = any(wrong.values())
    print("FAIL" if failed else "PASS")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
