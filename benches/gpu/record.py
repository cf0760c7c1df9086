"""torch's own allocator events, written as a trace for `memcuda replay` (tests/traces/README.md).
Records under torch's native allocator only."""
import shutil
import subprocess

OPERATIONS = {"alloc": "alloc", "free_requested": "free", "free_completed": "free_done",
              "segment_alloc": "segment_alloc", "segment_free": "segment_free"}
EVENTS = 4_000_000


def begin():
    """Before the first tensor."""
    import torch
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=EVENTS)


def lines(events):
    """The lines of a trace: allocations numbered, segments by address, streams by number."""
    yield "t_us,op,id,bytes,stream"
    numbers, streams, fresh, start = {}, {}, 0, events[0]["time_us"]
    for event in events:
        op = OPERATIONS.get(event["action"])
        if op == "alloc":
            numbers[event["addr"]] = fresh
            fresh += 1
        if op in ("alloc", "free", "free_done"):
            which = numbers.get(event["addr"])
        else:
            which = format(event["addr"], "x")
        if op is None or which is None:
            continue
        stream = streams.setdefault(event["stream"], len(streams))
        yield f'{event["time_us"] - start},{op},{which},{event["size"]},{stream}'
        if op == "free_done":
            numbers.pop(event["addr"], None)


def end(path):
    """Writes the trace, under zstd where the name ends in .zst; returns how many events there were."""
    import torch
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    if len(events) >= EVENTS:
        raise RuntimeError(f"more than {EVENTS} events: the trace would lack its beginning")
    text = "".join(line + "\n" for line in lines(events)).encode()
    if not path.endswith(".zst"):
        with open(path, "wb") as f:
            f.write(text)
    elif shutil.which("zstd"):
        subprocess.run(["zstd", "-q", "-f", "-19", "-T0", "-o", path], input=text, check=True)
    else:
        import pyarrow
        with open(path, "wb") as f:
            f.write(pyarrow.Codec("zstd", compression_level=19).compress(text, asbytes=True))
    return len(events)
