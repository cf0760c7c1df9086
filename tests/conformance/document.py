#!/usr/bin/env python3
"""Writes docs/conformance.md from the recorded runs:

    tests/conformance/document.py LIST > docs/conformance.md

LIST is what `conformance --list` printed. The runs are those of golden/ and
recorded/, made by tests/gpu/conformance.py --record.
"""

import glob
import os
import sys

import compare

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def head(path):
    """The first line of an output: GPU, driver, CUDA version, date."""
    return compare.read(path)[0].removeprefix("# ")


def families(every):
    """Cases by the beginning of their name, in order."""
    found = {}
    for name in every:
        found.setdefault(name.split("_")[0], []).append(name)
    return found


def verdict(names, bare, pool, told):
    equal = sum(pool.get(n) == bare[n] for n in names)
    listed = sum(n in told and pool.get(n) == told[n][1] for n in names)
    return equal, listed, len(names) - equal - listed


def write(every, sim, golden_file):
    key = os.path.basename(golden_file).removesuffix(".txt")
    pool_file = os.path.join(HERE, "recorded", f"{key}-pool.txt")
    bare, pool = compare.cases(golden_file), compare.cases(pool_file)
    told = compare.differences(os.path.join(ROOT, "docs/differences.md"))
    ran = [n for n in every if n in bare and not bare[n].startswith("needs ")]
    left = [n for n in every if n not in ran]
    print(f"## {head(golden_file)}\n")
    print(f"The pool's run: {head(pool_file)}.\n")
    print("| cases | number | equal | listed | unexplained | also on the simulated GPU |\n|---|---|---|---|---|---|")
    rows = list(families(ran).items())
    for family, names in rows + [("all", ran)]:
        equal, listed, wrong = verdict(names, bare, pool, told)
        print(f"| {family} | {len(names)} | {equal} | {listed} | {wrong} | {sum(n in sim for n in names)} |")
    wrong = [n for n in ran if verdict([n], bare, pool, told)[2]]
    if wrong:
        print(f"\nUnexplained: {', '.join(f'`{n}`' for n in wrong)}.")
    remark = os.path.join(HERE, "recorded", f"{key}-remark.md")
    if os.path.exists(remark):
        print("\n" + "\n".join(compare.read(remark)))
    if left:
        print(f"\nWithout an answer in these runs: {', '.join(f'`{n}`' for n in left)}.")
    print("\nWhat the plain driver answered to each:\n")
    for family, names in rows:
        print(f"### {family}\n\n| case | answer | on the pool |\n|---|---|---|")
        for name in names:
            same = "equal" if pool.get(name) == bare[name] else "[differs](differences.md)"
            print(f"| `{name}` | {bare[name]} | {same} |")
        print()


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    goldens = sorted(glob.glob(os.path.join(HERE, "golden/*.txt")))
    if not goldens:
        print("document.py: tests/conformance/golden has no file", file=sys.stderr)
        return 2
    every, sim = (set(names) if i else names for i, names in enumerate(compare.listed(sys.argv[1], "SIM")))
    print("# Conformance\n")
    print(
        "What a program can ask the driver about memory, asked of the real driver without the\n"
        "library and with it. Made by `make conformance-doc` from the recorded runs; the cases are\n"
        "in `tests/conformance`, the differences with their reasons in [differences.md](differences.md).\n"
        "The simulated GPU must give the same answers to as many as the last column has (`make test`).\n"
    )
    for golden_file in goldens:
        write(every, sim, golden_file)
    return 0


def guarded():
    try:
        return main()
    except compare.BadInput as error:
        print(f"document.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(guarded())
