#!/usr/bin/env python3
"""Programs that share memory by CUDA IPC, to be run bare and with the library: NAME runs one
and prints what came of it as a line of JSON; `other` in it may differ, and `refused` is why
it failed.
"""
import json
import sys
import traceback

import allreduce
import segments
import stray_writes
import torch_tensors

PROGRAMS = dict(torch_queues=torch_tensors.queues, torch_killed=torch_tensors.killed,
                stray_writes=stray_writes.lender, stray_writer=stray_writes.writer,
                segments=segments.exporter, segment_reader=segments.reader,
                allreduce=allreduce.both, rank_of_two=allreduce.rank_of_two)

if __name__ == "__main__":
    try:
        said = PROGRAMS[sys.argv[1]](*sys.argv[2:])
    except BaseException as error:
        traceback.print_exc()
        said = dict(refused=f"{type(error).__name__}: {error}"[:300])
    print(json.dumps(said), flush=True)
    sys.exit(3 if said and "refused" in said else 0)
