#!/usr/bin/env python3
"""Named memory on a real GPU: two torch jobs with one weight tensor, tensors by
name in torch, CuPy, JAX and numba, what it takes to open a name, and the kill
storms of storm.py.

    tests/gpu/names.py [--only jobs frameworks latency deaths storm]
    tests/gpu/names.py --simulated target/release/sim     # without the frameworks

Prints a PASS or FAIL line for each case and a table at the end; ends with 1 if
any failed, also where a framework is missing. Results go to --results, a JSON
line each. About six minutes.
"""
import argparse
import json
import os
import re
import subprocess
import sys

import named
import shim_run
import storm

LATENCY_BYTES = 256 << 20
ELEMENTS = 1 << 20


# What a framework does with a name: its address, what it sums to, and whether it
# may write. Each runs in a process of its own, the library preloaded.

def with_torch(tensor, writes):
    import torch
    got = torch.from_dlpack(tensor)
    total = got.double().sum().item()
    if writes:
        got += 1
    torch.cuda.synchronize()
    return got.data_ptr(), total


def with_torch_by_interface(tensor, writes):
    import torch
    got = torch.as_tensor(tensor, device="cuda")
    total = got.double().sum().item()
    if writes:
        got += 1
    torch.cuda.synchronize()
    return got.data_ptr(), total


def with_cupy(tensor, writes):
    import cupy
    got = cupy.from_dlpack(tensor)
    total = float(got.sum(dtype="f8"))
    if writes:
        got += 1
    cupy.cuda.runtime.deviceSynchronize()
    return got.data.ptr, total


def with_cupy_by_interface(tensor, writes):
    import cupy
    got = cupy.asarray(tensor)
    total = float(got.sum(dtype="f8"))
    if writes:
        got += 1
    cupy.cuda.runtime.deviceSynchronize()
    return got.data.ptr, total


def with_jax(tensor, writes):
    import jax
    # JAX never writes, but does not ask for the mark of read-only memory either.
    got = jax.dlpack.from_dlpack(tensor.for_reader() if writes is False else tensor)
    total = float(jax.numpy.asarray(got, jax.numpy.float32).sum())
    return got.unsafe_buffer_pointer(), total


def with_numba(tensor, writes):
    import numpy
    if not hasattr(numpy, "row_stack"):
        # This numba still asks for what numpy 2.5 dropped.
        numpy.row_stack = numpy.vstack
    from numba import cuda

    @cuda.jit
    def add_one(data):
        at = cuda.grid(1)
        if at < data.size:
            data[at] += 1

    got = cuda.as_cuda_array(tensor)
    total = float(got.copy_to_host().astype("f8").sum())
    if writes:
        add_one[(got.size + 255) // 256, 256](got)
    cuda.synchronize()
    return got.__cuda_array_interface__["data"][0], total


# Who, in which profile of torch, with which type of elements, and is it opened
# for reading and writing?
FRAMEWORKS = {
    "torch, native profile, DLPack": (with_torch, "native", "f32", True),
    "torch, async profile, DLPack": (with_torch, "async", "f32", True),
    "torch, native profile, array interface": (with_torch_by_interface, "native", "f32", True),
    "torch, bf16": (with_torch, "native", "bf16", True),
    "torch, read-only": (with_torch, "native", "f32", False),
    "CuPy, DLPack": (with_cupy, "auto", "f32", True),
    "CuPy, array interface": (with_cupy_by_interface, "auto", "f32", True),
    "JAX, DLPack": (with_jax, "auto", "f32", None),
    "JAX, bf16": (with_jax, "auto", "bf16", None),
    "JAX, read-only": (with_jax, "auto", "f32", False),
    "numba, array interface": (with_numba, "auto", "f32", True),
}


def use(which, name):
    """In a process of its own: a framework takes a name."""
    import memcuda
    function, _, _, writes = FRAMEWORKS[which]
    tensor = memcuda.open(name, read_only=writes is False)
    address, total = function(tensor, bool(writes))
    print(json.dumps(dict(zero_copy=address == tensor.address, total=total)), flush=True)


def serve():
    """In a process of its own: makes the names and says what is in them, without
    any framework."""
    import memcuda
    sys.path.append(os.path.join(named.PYTHON, "tests"))
    import support
    driver = support.Driver()
    driver.start()
    made = {}
    ones = dict(f32=b"\0\0\x80\x3f", bf16=b"\x80\x3f")          # 1.0
    print("ready", flush=True)
    for line in sys.stdin:
        word, name, dtype = line.split()
        if word == "make":
            made[name] = memcuda.create(name, (ELEMENTS,), dtype)
            driver.write(made[name].address, ones[dtype] * ELEMENTS)
        data = driver.read(made[name].address, made[name].nbytes)
        size = len(ones[dtype])
        same = data == data[:size] * ELEMENTS
        print(data[:size].hex() if same else "several values", flush=True)
        if word == "drop":
            made.pop(name).close()


def frameworks(place, _, report):
    server = place.start([sys.executable, __file__, "--serve"])
    if server.stdout.readline() != "ready\n":
        return report.fail("frameworks", "the process that makes the names did not start")
    two = dict(f32="00000040", bf16="0040")
    one = dict(f32="0000803f", bf16="803f")
    for number, (which, (_, profile, dtype, writes)) in enumerate(FRAMEWORKS.items()):
        name = f"frameworks/{number}"
        named.say(server, f"make {name} {dtype}")
        more = dict(MEMCUDA_TORCH=profile, XLA_PYTHON_CLIENT_PREALLOCATE="false")
        command = [sys.executable, __file__, "--use", which, "--name", name]
        done = subprocess.run(command, env=place.environment(**more), capture_output=True, text=True, timeout=300)
        then = named.say(server, f"drop {name} {dtype}")
        expected = (two if writes else one)[dtype]
        try:
            said = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            report.fail(which, done.stderr.strip().splitlines()[-1:] or f"status {done.returncode}")
            continue
        good = said["zero_copy"] and said["total"] == ELEMENTS and then == expected
        figure = "same address, bytes seen both ways" if writes else "same address, bytes seen"
        report.row(which, figure if good else f"{said}, left {then}, not {expected}", "", good, **said)
    server.stdin.close()
    server.wait()


def jobs(place, _, report):
    script = os.path.join(shim_run.ROOT, "examples/two_jobs.py")
    for way in ("api", "hints"):
        done = subprocess.run([sys.executable, script, "--way", way], env=place.environment(), capture_output=True,
                              text=True, timeout=300)
        what = f"two torch jobs, {'native profile, API' if way == 'api' else 'async profile, hints'}"
        try:
            said = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            report.fail(what, done.stderr.strip().splitlines()[-1:] or f"status {done.returncode}")
            continue
        figure = f"{said['weights_bytes'] >> 20} MiB; the jobs add {said['first_job_bytes'] >> 20} and " \
                 f"{said['second_job_bytes'] >> 20} MiB, bytes {'equal' if said['equal'] else 'differ'}"
        report.row(what, figure, "counted once, equal", done.returncode == 0, **said)


def opening_parts(said, number):
    """What the openings of that number in their processes were made of, in
    microseconds, from what the library says."""
    name = rf"latency/\d+/{number}: "
    patterns = dict(answer=name + r"the keeper answered in (\d+) us", imported=name + r"imported in (\d+) us",
                    mapped=name + r"imported in \d+ us, mapped in (\d+) us")
    found = {part: [int(us) for us in re.findall(pattern, said)] for part, pattern in patterns.items()}
    # The process that makes the names asks for each of them once.
    found["answer"] = found["answer"][1:]
    if number == 0:
        found["first word"] = [int(us) for us in re.findall(r"first word was waited for (\d+) us", said)]
    return found


def latency(place, options, report):
    program = place.build("open_latency")

    def run(mode, preload, **more):
        last = os.path.join(place.folder, "keeper.sock") if mode == "parts" else str(options.latency_bytes)
        done = subprocess.run([program, mode, str(options.processes), last], env=place.environment(preload, **more),
                              capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise OSError(f"open_latency {mode}: {done.stderr.strip()[-300:]}")
        return done

    def lines(mode, preload):
        return [json.loads(line) for line in run(mode, preload).stdout.splitlines()]

    try:
        seen = lines("bare", False) + lines("named", True)
        parts = lines("parts", False)
        # By itself, since what is said takes time, too.
        said = run("named", True, MEMCUDA_LOG="debug").stderr
    except (OSError, subprocess.SubprocessError) as error:
        return report.fail("latency", error)

    def median(way, field="open_us"):
        return named.percentile([line[field] for line in seen if line["way"] == way], 50)

    imported, size = median("import"), options.latency_bytes >> 20
    report.row(f"import + map alone, {size} MiB, new process", f"{imported:.0f} us", "", True)
    steps = ", ".join(f"{field[:-3]} at {median('import', field):.0f}" for field in
                      ("imported_us", "reserved_us", "mapped_us"))
    report.row("its steps", steps, "", True)
    report.row("legacy cuIpcOpenMemHandle, new process", f"{median('legacy'):.0f} us", "", True)
    first, other = median("name", "first_us"), median("name")
    ways = dict.fromkeys((line["way"], field) for line in parts for field in line if field != "way")
    for way, field in ways:
        figure = named.percentile([line[field] for line in parts if line["way"] == way], 50)
        report.row(f"part, first in a process: {way} {field[:-3]}", f"{figure:.1f} us", "", True)
    for number, which in enumerate(("first", "second")):
        for part, figures in opening_parts(said, number).items():
            figure = f"{named.percentile(figures, 50)} us, p90 {named.percentile(figures, 90)} us, {len(figures)} times" \
                if figures else "never"
            # The first word is mostly heard before anybody asks.
            good = len(figures) == options.processes or part == "first word"
            report.row(f"part of the {which} opening: {part}", figure, "", good)
    again, again_p99 = median("name", "again_us"), median("name", "again_p99_us")
    # The simulated driver takes no time: against that there is nothing to reach.
    limit = 1.5 * imported
    must = "" if options.simulated else f"<= 1.5x = {limit:.0f} us"
    for what, figure in (("first call of a new process", first), ("pool and connection there", other)):
        report.row(f"open by name, {what}", f"{figure:.0f} us, {figure / imported:.2f}x", must,
                   not must or figure <= limit, lines=seen if figure is first else [])
    report.row("open again in the same process", f"{again:.3f} us, p99 {again_p99:.3f} us", "<= 1 us", again <= 1)


PARTS = dict(jobs=jobs, frameworks=frameworks, latency=latency, deaths=storm.deaths,
             storm=lambda place, options, report: storm.Storm(place, options).run(report))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    storm.options_of(parser)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--processes", type=int, default=40, help="new processes of each way to open")
    parser.add_argument("--latency-bytes", type=int, default=LATENCY_BYTES, help="of what they open")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--use", choices=FRAMEWORKS, help=argparse.SUPPRESS)
    parser.add_argument("--name", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve()
    if options.use:
        return use(options.use, options.name)
    parts = [part for part in PARTS if part in options.only]
    if options.simulated:
        left = [part for part in parts if part in ("jobs", "frameworks")]
        parts = [part for part in parts if part not in left]
        if left:
            print(f"NOT RUN, they need a real GPU: {', '.join(left)}")
    report = named.Report(options.results)
    with named.Place(options.release, options.simulated) as place:
        place.start_keeper()
        for part in parts:
            print(f"== {part}", flush=True)
            try:
                PARTS[part](place, options, report)
            except Exception as error:          # the other parts go on
                report.fail(part, f"{type(error).__name__}: {error}")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
