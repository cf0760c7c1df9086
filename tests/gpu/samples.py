#!/usr/bin/env python3
"""NVIDIA's CUDA samples, bare and on the pool: each must print what it prints
without the library, and end as it does.

    python3 tests/gpu/samples.py --programs DIR [NAME...]
    python3 tests/gpu/samples.py --table FILE            # the paragraph for docs/measurements

DIR is what `cmake -S cuda-samples -B DIR -DCMAKE_CUDA_ARCHITECTURES=native &&
cmake --build DIR` left, with the samples' test_args.json copied into it: which
arguments a sample is run with, and which is not run. Each runs twice bare and
once preloaded; a line that is the same in both bare runs must be there in the
third. What differs is run again, twice; what then never differs is counted as
unsteady. What does not end well bare, for want of a screen, say, has to end
alike. Appends each result to samples.jsonl in $OUT or here, with the output of
what differs. Needs an NVIDIA GPU that nobody else uses.
"""
import argparse
import collections
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import json_lines
import shim_run

# One run of a sample: its name with what it is run with, its folder, its command.
Run = collections.namedtuple("Run", "name folder command")


def found(programs, names):
    """Every run of every sample: an executable that has the name of its folder."""
    with open(os.path.join(programs, "test_args.json")) as f:
        told = json.load(f)
    runs = []
    for folder, _, files in sorted(os.walk(programs)):
        sample = os.path.basename(folder)
        program = os.path.join(folder, sample)
        if sample not in files or not os.access(program, os.X_OK) or names and sample not in names:
            continue
        how = told.get(sample, {})
        if not how.get("skip"):
            for each in how.get("runs", [how]):
                arguments = each.get("args", [])
                runs.append(Run(" ".join([sample, *arguments]), folder, [program, *arguments]))
    return runs


def steady(bare):
    """What a program prints in every run: how it ends, and its lines, None where they are not the same."""
    ends = {run.status for run in bare}
    texts = [run.out.splitlines() for run in bare]
    if len({len(text) for text in texts}) > 1:
        return ends, None
    return ends, [line[0] if len(set(line)) == 1 else None for line in zip(*texts)]


def difference(bare, pooled):
    """What a run on the pool says otherwise than all bare runs, as one line, or None."""
    ends, lines = steady(bare)
    if pooled.status not in ends:
        return f"status {pooled.status} instead of {sorted(ends)}: {pooled.reason()}"
    if lines is None:
        return None
    said = pooled.out.splitlines()
    if len(said) != len(lines):
        return f"{len(said)} lines instead of {len(lines)}"
    for expected, line in zip(lines, said):
        if expected is not None and line != expected:
            return f"{line!r} instead of {expected!r}"
    return None


def compare(run, library, limit):
    """Runs a sample until it is known whether it differs; the result as a dict."""
    once = lambda preload: shim_run.run(run.command, preload, limit, True, run.folder)  # noqa: E731
    bare, pooled = [once(None), once(None)], [once(library)]
    differ = difference(bare, pooled[0])
    for _ in range(2):
        if not differ:
            break
        bare.append(once(None))
        pooled.append(once(library))
        differ = difference(bare, pooled[-1])
    result = dict(sample=run.name, status=pooled[-1].status, served=pooled[-1].served, lines=len(pooled[-1].out.splitlines()),
                  seconds=round(pooled[-1].seconds, 2), differ=differ, unsteady=not differ and len(pooled) > 1)
    if differ:
        result.update(bare=bare[-1].out[-4000:], pooled=pooled[-1].out[-4000:], said=pooled[-1].err[-2000:])
    return result


def table(path):
    rows = {row["sample"]: row for row in json_lines.read([path])}.values()
    well = sum(row["status"] == 0 for row in rows)
    served = sum(row["served"] > 0 for row in rows)
    print(f"{len(rows)} runs: {well} end with 0 and {len(rows) - well} do not, bare and preloaded; {served} have memory of the pool, "
          f"{sum(row['served'] for row in rows):,} requests; {sum(bool(row['differ']) for row in rows)} differ, "
          f"{sum(row['unsteady'] for row in rows)} unsteady.")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", metavar="NAME", help="samples (default: all)")
    options.add_argument("--programs", type=os.path.abspath)
    options.add_argument("--table", metavar="FILE")
    options.add_argument("--limit", type=float, default=60, help="seconds for a run")
    options.add_argument("--jobs", type=int, default=5, help="samples at one time")
    options.add_argument("--library", default=shim_run.LIBRARY)
    options = options.parse_args()
    if options.table:
        return table(options.table)
    if not options.programs:
        sys.exit("FAIL: --programs is missing: the folder in which the samples were built")
    shim_run.need_gpu()
    shim_run.need_library(options.library)
    runs = found(options.programs, options.names)
    results = os.path.join(os.environ.get("OUT", "."), "samples.jsonl")
    verdicts = shim_run.Verdicts()
    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda run: compare(run, options.library, options.limit), runs):
            json_lines.append(results, row)
            said = f"status {row['status']}, {row['served']} served, {row['lines']} lines, {row['seconds']} s"
            verdicts.say(not row["differ"], row["sample"], said + ", unsteady" * row["unsteady"] + (f"; {row['differ']}" if row["differ"] else ""))
    verdicts.finish()


if __name__ == "__main__":
    main()
