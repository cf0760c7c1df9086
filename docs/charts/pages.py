"""Puts tables and pictures of the results where a page asks for them:

    <!-- table: memory -->            a table of benches/gpu/tables.py
    <!-- table: efficiency a b -->    of these workloads
    <!-- chart: efficiency -->        a picture of this folder
    <!-- source -->                   what was measured, on what and when
    ... written by us ...
    <!-- end -->

What the results do not hold is said to be missing. All else of a page stays as it is.
"""
import os
import re

import summary
import tables

PART = re.compile(r"^<!-- (table|chart|source)(?:: ([^\n]*?))? -->\n.*?^<!-- end -->$", re.M | re.S)
MISSING = "*Not measured yet.*\n"
ABOUT = {
    "memory-over-time": "Memory that each allocator holds over time, and what the program needs",
    "efficiency": "Memory efficiency by workload and allocator",
    "efficiency-alternatives": "Memory efficiency of every allocator on some workloads",
    "step-ratio": "Step time against torch native, with intervals",
    "step-ratio-alternatives": "Step time of every allocator against torch native on some workloads",
    "out-of-memory": "Largest batch before memory runs out",
    "cost-live-blocks": "Cost of a request against live blocks",
}


def filled(page, results, charts, path):
    """The page of this path in the repository, its marked parts written anew. `charts` is
    {file name: SVG or None}."""
    def part(found):
        what, words = found.group(1), (found.group(2) or "").split()
        begin = found.group(0).split("\n", 1)[0]
        return f"{begin}\n{made(what, words, results, charts, path) or MISSING}<!-- end -->"
    return PART.sub(part, page)


def made(what, words, results, charts, path):
    if what == "source":
        said = summary.source(results.lines)
        return said and f"Measured on {said}.\n"
    name, *rest = words
    if what == "chart":
        file = os.path.join(os.path.relpath("docs/charts", os.path.dirname(path) or "."), f"{name}.svg")
        return f"![{ABOUT[name]}]({file})\n" if charts[f"{name}.svg"] else ""
    table = tables.TABLES[name]
    if name == "failures" and results.rows and not any(r.error for r in results.rows + results.together):
        return "Nothing did.\n"
    return tables.render(table(results, rest) if rest else table(results), markdown=True)
