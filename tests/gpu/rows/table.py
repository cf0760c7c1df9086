"""Results of the framework rows, shown.
"""
import sys

from . import MIB, PROFILES


def latest(cells):
    """The last result of each row and profile."""
    return list({(cell["row"], cell["profile"]): cell for cell in cells}.values())


def in_order(cells, rows):
    order = {name: at for at, name in enumerate([*rows, *PROFILES])}
    return sorted(latest(cells), key=lambda cell: (order.get(cell["row"], -1), order.get(cell["profile"], -1)))


def pair(cell, name):
    """A figure in MiB, once if both runs have the same; blank where there is none."""
    def of(run):
        found = [value for key, value in run["memory"].items() if key.endswith(name) and isinstance(value, int)]
        return sum(found) if found else None
    bare, pooled = of(cell["bare"]), of(cell["pooled"])
    if not bare and not pooled:
        return ""
    shown = [f"{value / MIB:,.1f}" if value is not None else "?" for value in (bare, pooled)]
    return shown[0] if bare == pooled else " / ".join(shown)


def fields(cell):
    """The columns of a cell: equal results, bytes, what was held, who served."""
    bare, pooled = cell["bare"], cell["pooled"]
    refused = cell["why"].startswith("refused alike")
    same = "refused alike" if refused else "equal" if bare["results"] and bare["results"] == pooled["results"] else "NOT EQUAL"
    used = pair(cell, "used") or pair(cell, "bytes_in_use")
    return [cell["row"], cell["profile"], cell["status"], same, pair(cell, "requested peak"), pair(cell, "allocated peak") or used,
            f"{bare['other'].get('reserved peak', 0) / MIB:,.0f}" if bare["other"].get("reserved peak") else "",
            f"{pooled['peak_physical'] / MIB:,.0f}", str(pooled["served"])]


HEAD = ["row", "profile", "verdict", "results", "requested peak", "allocated or used", "torch reserved, bare", "pool's physical", "requests served"]


def text(cells, rows):
    """The table for a terminal. MiB; one figure where both runs have the same."""
    lines = [HEAD] + [fields(cell) for cell in in_order(cells, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    return "\n".join("  ".join(field.ljust(width) for field, width in zip(line, widths)).rstrip() for line in lines)


def markdown(cells, rows):
    """docs/measurements/frameworks-h200.md."""
    if not cells:
        sys.exit("no results to show: --have FILE or --results FILE")
    cells = in_order(cells, rows)
    machines = [cell["machine"] for cell in cells]
    gpus = max((m["gpus"] for m in machines), key=len)
    packages = {name: version for m in machines for name, version in m["packages"].items()}
    dates, builds = sorted({m["date"] for m in machines}), {m.get("library") for m in machines}
    out = ["# Frameworks with and without the pool", "",
           f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}; {len(gpus)} x {gpus[0] if gpus else 'unknown GPU'}; Python {machines[-1]['python']}; "
           + ", ".join(f"{name} {version}" for name, version in packages.items()) + ".", "",
           "    python3 tests/gpu/frameworks.py                     # rows of one GPU",
           "    python3 tests/gpu/frameworks.py --gpus 2            # rows of two",
           "    python3 tests/gpu/frameworks.py --table --have FILE # this page", "",
           "A row is a program that runs bare and preloaded. *auto*: no setting; *keep*: `MEMCUDA_TORCH=keep`; *async*:",
           "`MEMCUDA_TORCH=async` against a bare `backend:cudaMallocAsync`; what that refuses, it must refuse alike; *poison*:",
           "`MEMCUDA_DEBUG=poison`; *ordered*: `MEMCUDA_FREE=ordered`. Results are digests of the exact bits. MiB; one figure",
           "where both runs have the same, else bare / preloaded.", "",
           "| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    out += ["| " + " | ".join(fields(cell)) + " |" for cell in cells]
    passed = sum(cell["status"] == "PASS" for cell in cells)
    out += ["", f"{passed} of {len(cells)} equal" + (f"; {len(builds)} builds of the library." if len(builds) > 1 else "."), ""]
    remarks = [cell for cell in cells if cell["why"]]
    if remarks:
        out += ["What is to be said of single rows:", ""]
        out += [f"- {cell['row']}, {cell['profile']}: {cell['why']}" for cell in remarks]
    return "\n".join(out)
