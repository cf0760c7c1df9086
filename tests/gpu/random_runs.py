"""Shared by the random programs of the GPU lane: their options, the programs of
every setting run several at a time, and a verdict for each setting. Knows no program.
"""
import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile

import shim_run
from rows.programs import tool


def parser_of(doc, settings, **defaults):
    """The options of both; `defaults` are of seeds, operations, limit and jobs."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(known=settings)
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=f"of: {', '.join(settings)} (default: all)")
    parser.add_argument("--seeds", type=int, help="programs of one and of several threads for each setting")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--operations", type=int)
    parser.add_argument("--limit", type=int, help="seconds that a program may take")
    parser.add_argument("--jobs", type=int, help="programs at one time")
    parser.add_argument("--library", default=shim_run.LIBRARY)
    parser.add_argument("--built", metavar="FILE", help="what nvcc makes, made already")
    parser.set_defaults(**defaults)
    return parser


def build(output, *arguments):
    """Compiles random_on_gpu.cu, with more where there is more."""
    nvcc = tool("nvcc")
    if not nvcc:
        sys.exit("FAIL: nvcc is missing (looked on PATH, in CUDA_HOME and /usr/local/cuda*)")
    source = os.path.join(shim_run.ROOT, "tests/gpu/random_on_gpu.cu")
    command = [nvcc, "-O2", "-arch=native", "-cudart", "shared", "-o", output, source, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"FAIL: nvcc: {done.stderr.strip()[-400:]}")


def run(options, threads, built, command, judge):
    """Runs every seed of every setting with one and with so many threads. `built(path)` makes
    what `command(path, seed, threads)` starts; `judge(setting, runs)` answers with what is
    wrong and what was done."""
    unknown = [name for name in options.settings if name not in options.known]
    if unknown:
        sys.exit(f"no setting {unknown[0]!r}; there are: {', '.join(options.known)}")
    shim_run.need_gpu()
    shim_run.need_library(options.library)
    library = os.path.abspath(options.library)

    def one(path, setting, seed, count):
        variables = options.known[setting]
        preload = None if variables is None else library
        done = shim_run.run(command(path, seed, count), preload=preload, limit=options.limit,
                            CUDA_MODULE_LOADING="EAGER", **(variables or {}))
        return f"seed {seed}, {count} threads", done

    verdicts = shim_run.Verdicts()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        path = os.path.abspath(options.built or os.path.join(folder, "built"))
        if not options.built:
            built(path)
        seeds = range(options.first, options.first + options.seeds)
        begun = {setting: [pool.submit(one, path, setting, seed, count) for seed in seeds for count in (1, threads)]
                 for setting in options.settings or options.known}
        for setting, runs in begun.items():
            runs = [run.result() for run in runs]
            wrong, did = judge(setting, runs)
            served = sum(done.served for _, done in runs)
            if options.known[setting] is not None and not served:
                wrong.append("the library served nothing")
            seconds = sum(done.seconds for _, done in runs)
            verdicts.say(not wrong, setting, f"{len(runs)} programs, {did}, {served:,} served, {seconds:.0f} s" +
                         "".join(f"\n     {line}" for line in wrong))
    verdicts.finish()
