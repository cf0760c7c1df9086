#!/usr/bin/env python3
"""Does a snapshot keep to what PyTorch's viewer needs?

    memory_viz.py SNAPSHOT [_memory_viz.py]

Prints a line of sums, or what is wrong. With torch's own file (torch/cuda of a
wheel) its `segsum`, `trace` and `trace_plot` read the snapshot as well.
"""
import importlib.util
import pickle
import pickletools
import sys

# What MemoryViz.js unpickles.
KNOWN = set("""PROTO FRAME MARK STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
    BINUNICODE SHORT_BINUNICODE EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND
    APPENDS SETITEM SETITEMS LIST DICT BINGET LONG_BINGET BINPUT LONG_BINPUT MEMOIZE""".split())
STATES = {"active_allocated", "active_pending_free", "inactive"}
ACTIONS = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
           "segment_map", "segment_unmap", "snapshot", "oom"}


def expect(holds, text):
    if not holds:
        sys.exit(f"wrong: {text}")


def check_frames(frames):
    for frame in frames:
        expect(set(frame) == {"filename", "line", "name"}, f"frame {frame}")
        expect(isinstance(frame["line"], int), f"line of {frame}")


def check_segment(segment):
    reached, sums = segment["address"], {state: 0 for state in STATES}
    requested = 0
    for block in segment["blocks"]:
        expect(block["address"] == reached, f"a gap before {block['address']:#x}")
        expect(block["size"] > 0 and block["state"] in STATES, f"block {block}")
        expect(0 <= block["requested_size"] <= block["size"], f"sizes of {block}")
        check_frames(block["frames"])
        reached += block["size"]
        sums[block["state"]] += block["size"]
        if block["state"] == "active_allocated":
            requested += block["requested_size"]
    expect(reached == segment["address"] + segment["total_size"], "blocks do not fill a segment")
    expect(segment["allocated_size"] == sums["active_allocated"], "allocated_size")
    active = sums["active_allocated"] + sums["active_pending_free"]
    expect(segment["active_size"] == active, "active_size")
    expect(segment["requested_size"] == requested, "requested_size")
    expect(segment["segment_type"] in ("small", "large"), "segment_type")
    expect(len(segment["segment_pool_id"]) == 2, "segment_pool_id")
    check_frames(segment["frames"])


def main(path, torch=None):
    with open(path, "rb") as file:
        data = file.read()
    parts = 0
    for operation, value, _ in pickletools.genops(data):
        expect(operation.name in KNOWN, f"{operation.name} is not known to the viewer")
        expect(operation.name != "PROTO" or 2 <= value <= 4, f"protocol {value}")
        expect(operation.name != "LONG1" or value >= 0, f"a negative address {value}")
        parts += operation.name in ("APPENDS", "SETITEMS")
    snapshot = pickle.loads(data)
    ends = []
    for segment in snapshot["segments"]:
        check_segment(segment)
        ends.append((segment["device"], segment["address"], segment["total_size"]))
    ends.sort()
    for one, other in zip(ends, ends[1:]):
        expect(one[0] != other[0] or one[1] + one[2] <= other[1], "segments overlap")
    devices = 1 + max((segment["device"] for segment in snapshot["segments"]), default=-1)
    expect(len(snapshot["device_traces"]) >= devices, "a device without a list of its events")
    events = [event for events in snapshot["device_traces"] for event in events]
    for event in events:
        expect(event["action"] in ACTIONS, f"event {event}")
        check_frames(event["frames"])
    if torch:
        spec = importlib.util.spec_from_file_location("_memory_viz", torch)
        viz = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(viz)
        total = sum(segment["total_size"] for segment in snapshot["segments"])
        expect(f"total_reserved: {viz.Bytes(total)}\n" in viz.segsum(snapshot), "segsum")
        told = viz.trace(snapshot)
        expect(all(f"{len(one)} entries" in told for one in snapshot["device_traces"] if one), "trace")
        lines = viz.memory(snapshot, format_flamegraph=str)
        expect(bool(lines) == bool(snapshot["segments"]), "memory")
        for page in (viz.trace_plot(snapshot), viz.segment_plot(snapshot)):
            expect("<html" in page or "<script" in page, "a page")
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    of = {state: sum(b["size"] for b in blocks if b["state"] == state) for state in STATES}
    requested = sum(segment["requested_size"] for segment in snapshot["segments"])
    print(f"segments {len(ends)} blocks {len(blocks)} events {len(events)}"
          f" active {of['active_allocated']} pending {of['active_pending_free']}"
          f" inactive {of['inactive']} requested {requested}")


main(*sys.argv[1:])
