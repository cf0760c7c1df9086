#!/usr/bin/env python3
"""Other projects' own tests of CUDA, bare and on the pool: every test must end
as it does without the library.

    python3 tests/gpu/suites.py --sources DIR [SUITE...]          # all suites of one GPU
    python3 tests/gpu/suites.py --sources DIR --gpus 2            # the suites of two GPUs
    python3 tests/gpu/suites.py --table FILE            # the table for docs/measurements

DIR has clones of what is to be tested, each in the version that is installed or
near it: `pytorch`, `cupy`, `jax`, `cuda-python`, `pycuda`, `tinygrad`,
`numba-cuda` and `warp` (whose tests themselves come with the package) and, without
the rest of its clone, `rmm/tests`. What differs is run again, twice, bare and
preloaded; what then ends alike is counted as unsteady. What differs on purpose is
listed with its reason (KNOWN). Prints a line a suite and profile and names each
test that differs; appends each result to suites.jsonl in $OUT or here, and keeps the
output of every run beside it. Needs NVIDIA GPUs that nobody else uses, pytest with
pytest-xdist and pytest-timeout, for PyTorch's tests expecttest, for numba's
filecheck and cffi.
"""
import argparse
import collections
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import json_lines
import shim_run

# Of each profile: the environment of the bare run, of another one whose end is as good where it differs, and of the run
# on the pool.
TORCH = {
    "auto": dict(bare={}, also={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "keep": dict(bare={}, pooled={"MEMCUDA_TORCH": "keep"}),
    "async": dict(bare={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, pooled={"MEMCUDA_TORCH": "async"}),
}
ARRAYS = {"auto": dict(bare={})}
# By CUDA's driver; by itself it would go past that, to the kernel's.
TINYGRAD = {"auto": dict(bare={"DEV": "CUDA"}, pooled={"DEV": "CUDA"})}

# Multicast over NVLink is no matter of the pool, and a mistake with it takes all GPUs of a host away.
QUIET = dict(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1")
# Where a suite lies below the sources, pytest's options, its tests, its profiles, how many processes run it, for how many GPUs.
Suite = collections.namedtuple("Suite", "folder options tests profiles workers gpus", defaults=[1])


def torch(workers, *tests, without="", gpus=1):
    # PyTorch's conftest is for the pytest of its own CI.
    return Suite("pytorch/test", ["--noconftest", *(["-k", f"not ({without})"] if without else [])], tests, TORCH, workers, gpus)


SUITES = {
    "torch-cuda": torch(4, "test_cuda.py"),
    "torch-trees": torch(4, "inductor/test_cudagraph_trees.py"),
    "torch-processes": torch(3, "test_multiprocessing.py"),
    "torch-rest": torch(2, "test_cuda_primary_ctx.py", "test_dlpack.py", "test_cuda_sanitizer.py", "test_cuda_trace.py",
                        "test_cuda_nvml_based_avail.py"),
    "cupy": Suite("cupy/tests", ["-m", "not multi_gpu"], ["cupy_tests/cuda_tests"], ARRAYS, 6),
    "cupy-core": Suite("cupy/tests", ["-m", "not multi_gpu and not slow"], ["cupy_tests/core_tests"], ARRAYS, 7),
    "numba": Suite("numba-cuda/testing", ["--noconftest", "-p", "conftest", "-o", "consider_namespace_packages=true", "--dist",
                                             "loadscope", "--pyargs"], ["numba.cuda.tests"], ARRAYS, 7),
    "rmm": Suite("rmm", [], ["tests"], ARRAYS, 5),
    "torch-gpus": torch(4, "test_cuda_multigpu.py", "distributed/test_nccl.py", "distributed/test_data_parallel.py",
                        "distributed/test_p2p_ipc.py", "distributed/test_cupy_as_tensor.py", gpus=2),
    # Without what takes minutes and allocates nothing to speak of.
    "torch-collectives": torch(6, *(f"distributed/test_c10d_{part}.py" for part in ("ops_nccl", "spawn_nccl", "nccl")),
                               without="DistributedDataParallelTest or UserBuffer or NCCLTrace or Timeout", gpus=2),
    "torch-symmetric": torch(3, "distributed/test_symmetric_memory.py", without="multimem or multicast", gpus=2),
    "torch-shards": torch(4, *(f"distributed/_composable/fsdp/test_fully_shard_{part}.py"
                               for part in ("comm", "memory", "overlap", "training", "mixed_precision")), without="alloc_from_pg", gpus=2),
    "cupy-gpus": Suite("cupy/tests", ["-m", "multi_gpu"],
                       ["cupy_tests/cuda_tests", "cupy_tests/core_tests", "cupy_tests/creation_tests", "cupy_tests/manipulation_tests",
                        "cupyx_tests/distributed_tests"], ARRAYS, 4, 2),
    # What CUDA's own Python packages say of cuMemAlloc, memory pools and their export, graphs and their memory nodes.
    "cuda-bindings": Suite("cuda-python/cuda_bindings", [], [*(f"tests/test_{part}.py" for part in (
        "cuda", "cudart", "interoperability", "kernelParams", "basics", "utils"))], ARRAYS, 3),
    "cuda-core": Suite("cuda-python/cuda_core", ["--ignore=tests/cython", "--ignore=tests/example_tests"], ["tests"], ARRAYS, 5),
    "pycuda": Suite("pycuda/test", [], ["test_driver.py", "test_gpuarray.py", "test_cumath.py"], ARRAYS, 4),
    "tinygrad": Suite("tinygrad", ["--noconftest"], ["test/test_tiny.py", *(f"test/backend/test_{part}.py" for part in (
        "graph", "jit", "subbuffer", "zero_copy", "interop", "nn", "optim", "ops"))], TINYGRAD, 5),
    "warp": Suite("warp", ["--noconftest", "-k", "not cpu", "--pyargs"], [f"warp.tests.test_{part}" for part in (
        "array", "array_reduce", "async", "bvh", "copy", "devices", "dlpack", "grad", "hash_grid", "indexedarray", "large",
        "launch", "marching_cubes", "mempool", "mesh", "pinned", "runlength_encode", "sparse", "streams", "torch", "utils",
        "volume")], ARRAYS, 5),
    "jax": Suite("jax/tests", [], ["array_test.py", "array_interoperability_test.py", "memories_test.py"], ARRAYS, 4),
}
# What differs on purpose, by the profile and the end of the test's name.
KNOWN = {
    ("auto", "test_graph_memory_stats_and_use_result_after_destroy_graph"):
        "counts torch's segments around a capture; under auto torch gave idle ones back meanwhile",
    ("keep", "TestCudaMallocAsync::test_device_memory_used"):
        "expects that NVML's figure grows with a tensor; the pool lent what it held",
    ("auto", "TestMemoryAsyncPool::test_free_all_blocks_large_chunk"):
        "expects that cudaMalloc runs out of memory while cudaFreeAsync's memory is idle; the pool is one for both",
    ("auto", "TestMemoryAsyncPool::test_free_bytes"):
        "follows the test before it, whose memory is idle in the pool",
}
LINE = re.compile(r"^\[gw\d+\](?: \[ *\d+%\])? (PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR) (\S.*?)\s*$")
CRASH = re.compile(r"crashed while running '(.+?)'")
SAID = re.compile(r"^(?:FAILED|ERROR) (\S.*?) - (.*)$")


def outcomes(text):
    """How each test ended, by name, and what it said if it failed."""
    ended, said = {}, {}
    for line in text.splitlines():
        if found := LINE.match(line):
            # Of a test whose end fails, too, the worse counts.
            if ended.get(found[2]) not in ("FAILED", "ERROR", "CRASHED"):
                ended[found[2]] = found[1]
        elif found := CRASH.search(line):
            ended[found[1]] = "CRASHED"
        elif found := SAID.match(line):
            said[found[1]] = found[2][:300]
    return ended, said


class Runner:
    """Runs tests of one suite under one profile or bare, and keeps what they printed."""

    def __init__(self, suite, name, sources, logs, limit):
        self.suite, self.name, self.logs, self.limit = suite, name, logs, limit
        self.folder = os.path.join(sources, suite.folder)

    def run(self, label, preload, environment, tests=None, workers=None):
        command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-rfE", "--durations=6", "-p", "no:cacheprovider",
                   "-p", "no:randomly", "--timeout", "100", "-n", str(workers or self.suite.workers), "--rootdir", self.folder, "-c", os.devnull,
                   *self.suite.options, *(tests or self.suite.tests)]
        done = shim_run.run(command, preload, self.limit, folder=self.folder, XLA_PYTHON_CLIENT_PREALLOCATE="false",
                            **QUIET, **environment)
        with open(os.path.join(self.logs, f"{self.name}.{label}.log"), "w") as f:
            f.write(done.out + "\n--- standard error\n" + done.err)
        return *outcomes(done.out + done.err), done


def differing(pooled, said, bare, cut):
    """What ends otherwise than without the library: how it ended there, how here, what it said. Of runs that were cut off
    only what both came to."""
    both = {*pooled} & {*bare} if cut else {*pooled, *bare}
    return {test: [bare.get(test, "not run"), pooled.get(test, "not run"), said.get(test, "")]
            for test in sorted(both) if pooled.get(test) != bare.get(test)}


def settle(runner, label, setting, library, differ, rounds=2):
    """Runs what differs again: a test stays if it never once ended as it does bare, or as it does in the other bare way."""
    unsteady = {}
    for round in range(rounds):
        if not differ:
            break
        tests = sorted(differ)[:150]
        bare, *others = [runner.run(f"{label}.again{round}.{which}", None, setting[which], tests, 3)[0]
                         for which in ("bare", "also") if which in setting]
        pooled, said, _ = runner.run(f"{label}.again{round}", library, setting.get("pooled", {}), tests, 3)
        for test in tests:
            if pooled.get(test) == bare.get(test):
                unsteady[test] = differ.pop(test)
            elif pooled.get(test) in [ended.get(test) for ended in others]:
                del differ[test]
            else:
                differ[test] = [bare.get(test, "not run"), pooled.get(test, "not run"), said.get(test, differ[test][2])]
    return unsteady


def one(name, options, results, logs):
    """Runs a suite bare and under each profile, side by side, and tells what differs."""
    suite = SUITES[name]
    profiles = {profile: setting for profile, setting in suite.profiles.items() if profile in options.profiles.split(",")}
    runner = Runner(suite, name, options.sources, logs, options.limit)
    runs = {profile: (options.library, setting.get("pooled", {})) for profile, setting in profiles.items()}
    runs.update({label(setting["bare"]): (None, setting["bare"]) for setting in profiles.values()})
    with ThreadPoolExecutor(len(runs)) as pool:
        ended = dict(zip(runs, pool.map(lambda key: runner.run(key, *runs[key]), runs)))
    good = True
    for profile, setting in profiles.items():
        pooled, said, done = ended[profile]
        bare, _, alone = ended[label(setting["bare"])]
        cut = shim_run.LATE in (done.status, alone.status)
        differ = differing(pooled, said, bare, cut)
        unsteady = settle(runner, profile, setting, options.library, differ) if options.again else {}
        known = {test: [*how[:2], reason] for test, how in differ.items() for (where, end), reason in KNOWN.items()
                 if where == profile and test.endswith(end)}
        differ = {test: how for test, how in differ.items() if test not in known}
        counts = collections.Counter(pooled.values())
        json_lines.append(results, dict(suite=name, profile=profile, tests=len(pooled), cut=cut,
                                        bare=collections.Counter(bare.values()), counts=counts, status=done.status,
                                        seconds=round(done.seconds, 1), differ=differ, known=known, unsteady=unsteady))
        passed = not differ and counts["PASSED"] > 0
        good = good and passed
        print(f"{'PASS' if passed else 'FAIL'} {name} {profile}: {len(pooled)} tests ("
              f"{', '.join(f'{count} {word.lower()}' for word, count in counts.most_common())}) in {done.seconds:.0f} s, status "
              f"{done.status}; {len(differ)} differ, {len(known)} on purpose, {len(unsteady)} unsteady", flush=True)
        for test, (was, now, why) in list(differ.items())[:40]:
            print(f"     {test}: {was} -> {now} {why[:200]}", flush=True)
    return good


def label(environment):
    """A bare run's name by what it sets."""
    return re.sub(r"\W+", "-", "-".join(["bare", *environment.values()]))


def table(path):
    """Of each suite and profile the last run in a file, as Markdown."""
    rows = {(row["suite"], row["profile"]): row for row in json_lines.read([path])}
    print("| tests of | profile | run | passed | failed, bare and preloaded | skipped | differ | differ on purpose | unsteady |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (suite, profile), row in rows.items():
        counts = row["counts"]
        passed, skipped = (sum(counts.get(word, 0) for word in words) for words in (("PASSED", "XFAIL"), ("SKIPPED",)))
        apart = [len(row[kind]) for kind in ("differ", "known", "unsteady")]
        alike = row["tests"] - passed - skipped - sum(now not in ("PASSED", "XFAIL", "SKIPPED", "not run")
                                                      for kind in ("differ", "known") for _, now, *_ in row[kind].values())
        print(f"| {suite} | {profile} | {row['tests']} | {passed} | {alike} | {skipped} | {' | '.join(map(str, apart))} |")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("suites", nargs="*", metavar="SUITE", help="names (default: all of so many GPUs)")
    options.add_argument("--gpus", type=int, default=1, help="run the suites of so many GPUs")
    options.add_argument("--sources", type=os.path.abspath)
    options.add_argument("--table", metavar="FILE")
    options.add_argument("--profiles", default="auto,keep,async")
    options.add_argument("--limit", type=float, default=400, help="seconds for a run of a suite")
    options.add_argument("--again", type=int, default=1, help="0: do not run again what differs")
    options.add_argument("--library", default=shim_run.LIBRARY)
    options = options.parse_args()
    if options.table:
        return table(options.table)
    if not options.sources:
        sys.exit("FAIL: --sources is missing: the folder with the sources whose tests are to run")
    shim_run.need_gpu()
    shim_run.need_library(options.library)
    out = os.environ.get("OUT", ".")
    logs = os.path.join(out, "suites")
    os.makedirs(logs, exist_ok=True)
    good = [one(name, options, os.path.join(out, "suites.jsonl"), logs) for name
            in options.suites or (name for name, suite in SUITES.items() if suite.gpus == options.gpus)]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
