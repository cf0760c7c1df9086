#!/usr/bin/env python3
"""Two torch jobs share one weight tensor: by its name it is the same memory in
both, so the device has it once.

    memcuda run -- python examples/two_jobs.py
    memcuda run -- python examples/two_jobs.py --way hints

With `api` the jobs ask for the name (`import memcuda`), in torch's own allocator.
With `hints` they are plain torch, and a rule in the environment gives each
allocation of that size the name; that needs torch's async backend, where every
tensor is an allocation.

Prints one JSON line: what each job saw in the weights, and by how much the
device's used memory rose with each job. Needs torch and a GPU.
"""
import argparse
import hashlib
import json
import os
import subprocess
import sys

NAME = "two-jobs/weights"
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python")


def job(way, number, rows, columns):
    """One job, which tells on its output what it sees, and ends with its input."""
    import torch
    if way == "api":
        sys.path.append(PACKAGE)                # where the package is not installed
        import memcuda
        weights = torch.from_dlpack(memcuda.create_or_open(NAME, (rows, columns), torch.bfloat16))
    else:
        weights = torch.empty((rows, columns), dtype=torch.bfloat16, device="cuda")
    if number == 1:
        weights.normal_(generator=torch.Generator("cuda").manual_seed(7))
    torch.cuda.synchronize()
    digest = hashlib.sha256(weights.view(torch.int16).cpu().numpy()).hexdigest()
    print(digest, flush=True)
    sys.stdin.read()


def used_mib():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=("api", "hints"), default="api")
    parser.add_argument("--mib", type=int, default=2048, help="size of the weights")
    parser.add_argument("--job", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows, columns = options.mib, 1 << 19        # 1 MiB a row
    if options.job:
        return job(options.way, options.job, rows, columns)

    environment = dict(os.environ, MEMCUDA_TORCH="native")
    if options.way == "hints":
        rule = f"size={options.mib}MiB,name={NAME},dtype=bf16,shape={rows}x{columns}"
        environment.update(MEMCUDA_TORCH="async", MEMCUDA_NAMES=rule)
    jobs, digests, used = [], [], [used_mib()]
    for number in (1, 2):
        command = [sys.executable, __file__, "--way", options.way, "--mib", str(options.mib), "--job", str(number)]
        jobs.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        digests.append(jobs[-1].stdout.readline().strip())
        used.append(used_mib())
    for each in jobs:
        each.stdin.close()
    statuses = [each.wait() for each in jobs]
    first, second = used[1] - used[0], used[2] - used[1]
    # Both jobs have a context of the same size; only the first one adds weights.
    result = dict(way=options.way, weights_bytes=options.mib << 20, equal=digests[0] == digests[1] != "",
                  counted_once=abs(first - second - options.mib) <= options.mib // 4, first_job_bytes=first << 20,
                  second_job_bytes=second << 20, statuses=statuses)
    print(json.dumps(result))
    return 0 if result["equal"] and result["counted_once"] and not any(statuses) else 1


if __name__ == "__main__":
    sys.exit(main())
