#!/usr/bin/env python3
"""Does a snapshot keep to what PyTorch's viewer needs?

    memory_viz.py SNAPSHOT [_memory_viz.py]

Prints a line of sums, or what is wrong. What happened is gone through as the
viewer does it: backwards, with a segment below every block at every moment, for
"Allocator State History"; forwards for "Active Memory Timeline". With torch's own
file (torch/cuda of a wheel) its `segsum`, `trace` and `trace_plot` read the
snapshot as well.
"""
import bisect
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


class Segments:
    """Where segments are, changed as MemoryViz.js changes them."""

    def __init__(self, segments):
        self.all = sorted([s["address"], s["total_size"], s["stream"]] for s in segments)

    def find(self, address, size=1):
        at = bisect.bisect_right(self.all, [address, float("inf")]) - 1
        holds = at >= 0 and address + size <= self.all[at][0] + self.all[at][1]
        return at if holds else None

    def cover(self, address, size):
        """Is there a segment below every byte?"""
        end = address + size
        while address < end:
            at = self.find(address)
            if at is None:
                return False
            address = sum(self.all[at][:2])
        return True

    def map(self, address, size, stream):
        at = bisect.bisect_left(self.all, [address])
        behind, before = self.all[at:at + 1], self.all[at - 1:at] if at else []
        expect(not behind or address + size <= behind[0][0], f"{address:#x} is mapped twice")
        expect(not before or sum(before[0][:2]) <= address, f"{address:#x} is mapped twice")
        self.all.insert(at, [address, size, stream])
        for first in (at, at - 1):
            if 0 <= first < len(self.all) - 1:
                one, other = self.all[first:first + 2]
                if one[0] + one[1] == other[0] and one[2] == other[2]:
                    self.all[first:first + 2] = [[one[0], one[1] + other[1], one[2]]]

    def unmap(self, address, size, stream):
        at = self.find(address, size)
        expect(at is not None, f"{address:#x} is unmapped and was not mapped")
        start, length, of = self.all[at]
        rest = [[start, address - start, of], [address + size, start + length - address - size, of]]
        self.all[at:at + 1] = [piece for piece in rest if piece[1]]


def folded(events):
    """A free that is done at once is one event."""
    for event, behind in zip(events, events[1:] + [{}]):
        done = behind.get("action") == "free_completed" and behind["addr"] == event.get("addr")
        if event["action"] == "free_requested" and done:
            continue
        yield "free" if event["action"] == "free_completed" else event["action"], event


def go_back(segments, events):
    """Allocator State History; how many places were mapped for blocks."""
    mapped = Segments(segments)
    blocks = {b["address"]: b["size"] for s in segments for b in s["blocks"] if b["state"] != "inactive"}
    starts, places = sorted(blocks), 0
    for action, event in reversed(list(folded(events))):
        if action == "oom":
            continue
        address, size = event["addr"], event["size"]
        known = bisect.bisect_left(starts, address)
        here = starts[known:known + 1] == [address]
        if action == "free":
            expect(mapped.cover(address, size), f"no segment below {address:#x}")
            if not here:
                starts.insert(known, address)
        elif action == "alloc":
            del starts[known:known + here]
        elif action == "segment_unmap":
            mapped.map(address, size, event["stream"])
            places += 1
        elif action == "segment_map":
            inside = starts[known:known + 1]
            expect(not inside or inside[0] >= address + size, f"a block in {address:#x}, unmapped")
            mapped.unmap(address, size, event["stream"])
        else:
            expect(False, f"{action} of {address:#x}")
    return places


def go_on(segments, events):
    """Active Memory Timeline: the most, and what is left."""
    live, before, changes = {}, 0, []
    for action, event in folded(events):
        if action == "alloc":
            expect(event["addr"] not in live, f"{event['addr']:#x} is live, and allocated again")
            live[event["addr"]] = event["size"]
            changes.append(event["size"])
        elif action == "free":
            size = live.pop(event["addr"], None)
            expect(size in (None, event["size"]), f"size of {event}")
            before += event["size"] if size is None else 0
            changes.append(-event["size"])
    for block in (block for segment in segments for block in segment["blocks"]):
        if block["state"] == "active_allocated" and block["address"] not in live:
            before += block["requested_size"]
    most = now = before
    for change in changes:
        now += change
        most = max(now, most)
    return most, now


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
    times = [[event["time_us"] for event in one] for one in snapshot["device_traces"]]
    expect(all(one == sorted(one) for one in times), "times")
    timeline = {"places": 0, "most": 0, "left": 0}
    for device, one in enumerate(snapshot["device_traces"]):
        segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
        timeline["places"] += go_back(segments, one)
        most, left = go_on(segments, one)
        timeline["most"] += most
        timeline["left"] += left
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
          f" inactive {of['inactive']} requested {requested}"
          f" {' '.join(f'{name} {number}' for name, number in timeline.items())}")


main(*sys.argv[1:])
