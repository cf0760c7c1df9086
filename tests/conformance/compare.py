#!/usr/bin/env python3
"""Compares an output of the conformance program with a golden file.

    compare.py --list LIST --golden GOLDEN --output OUTPUT
               [--flag SIM] [--without DEVICES2] [--differences FILE]

LIST is what `conformance --list` printed. Every case of it (that has the one flag
and has not the other) must be in the output with the golden line; with --differences, or with the line
that the file gives for "with", and then the golden line must be the one that it
gives for "without". A listed difference that does not occur is an error, too.
Prints one line per error and a sum last. Ends with 0 if there was none, 1 if
there was, 2 for bad input.
"""

import argparse
import re
import sys


class BadInput(Exception):
    pass


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error


def cases(path):
    """Name to text of every case in an output; its head and sum begin with '#'."""
    found = {}
    for number, line in enumerate(read(path), 1):
        if not line or line.startswith("#"):
            continue
        name, colon, text = line.partition(": ")
        if not colon or name in found:
            raise BadInput(f"{path}:{number}: not a case, or one told twice: {line[:60]}")
        found[name] = text
    return found


def listed(path, flag=None, without=None):
    """Names of all cases, and of those with a flag and without another, in order."""
    rows = [line.split() for line in read(path)]
    fits = [row[0] for row in rows if (flag is None or flag in row[1:]) and without not in row[1:]]
    return [row[0] for row in rows], fits


# The section of the differences that is about cases, and its rows.
SECTION = "## Answers of the driver"
ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$")


def differences(path):
    """Name to (without, with): the rows of that section."""
    found = {}
    inside = False
    for number, line in enumerate(read(path), 1):
        if line.startswith("## "):
            inside = line == SECTION
        row = ROW.match(line) if inside else None
        if row and row[1] in found:
            raise BadInput(f"{path}:{number}: {row[1]} is listed twice")
        if row:
            found[row[1]] = (row[2], row[3])
    return found


def errors(expected, golden, output, allowed):
    """What is wrong, as (case, lines that say it)."""
    for name in expected:
        if name not in golden:
            yield name, ["not in the golden file"]
        elif golden[name].startswith("needs "):
            yield name, [f"the golden file was made where it could not run: {golden[name]}"]
        elif name not in output:
            yield name, ["not in the output"]
        elif name not in allowed:
            if output[name] != golden[name]:
                yield name, ["golden: " + golden[name], "output: " + output[name]]
        else:
            without, with_it = allowed[name]
            if without != golden[name]:
                yield name, ["golden: " + golden[name], "listed: " + without]
            if output[name] == golden[name]:
                yield name, ["a listed difference that does not occur"]
            elif output[name] != with_it:
                yield name, ["output: " + output[name], "listed: " + with_it]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--list", required=True)
    parser.add_argument("--golden", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--flag")
    parser.add_argument("--without")
    parser.add_argument("--differences")
    options = parser.parse_args()
    try:
        every, expected = listed(options.list, options.flag, options.without)
        golden, output = cases(options.golden), cases(options.output)
        allowed = differences(options.differences) if options.differences else {}
        if not expected:
            raise BadInput(f"{options.list}: no case with the flag {options.flag} and without {options.without}")
    except BadInput as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    wrong = list(errors(expected, golden, output, allowed))
    wrong += [(name, ["in the golden file, but no case any more"]) for name in golden if name not in every]
    wrong += [(name, ["in the output, but no case any more"]) for name in output if name not in every]
    wrong += [(name, ["a listed difference, but no case any more"]) for name in allowed if name not in every]
    for name, lines in wrong:
        for line in lines:
            print(f"{name}: {line}")
    equal = len(expected) - len({name for name, _ in wrong} & set(expected))
    told = sum(name in allowed for name in expected)
    print(f"# {len(expected)} cases, {equal} as they should be, {told} of them with a listed difference")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
