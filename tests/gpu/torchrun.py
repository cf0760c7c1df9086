#!/usr/bin/env python3
"""The torchrun recipe on real GPUs: the same training bare and on the pool, each
rank preloaded, its losses and weights identical.

    tests/gpu/torchrun.py [--ranks 2] [--cpu] [--out FILE]

Needs torch and a GPU for each rank (--cpu tries the recipe without any, over
gloo), and target/release. The last line is what was found, as JSON.
"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RECIPES = os.path.join(ROOT, "examples/recipes")


def run(command, environment):
    """The JSON line of a run."""
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=400)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(lines) != 1:
        sys.exit(f"FAIL: {' '.join(command)}: status {done.returncode}\n{done.stdout}")
    return json.loads(lines[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--out")
    parser.add_argument("arguments", nargs="*", help="for ddp.py, after --")
    arguments = parser.parse_args()

    environment = {**os.environ, "PYTHON": sys.executable,
                   "PATH": f"{ROOT}/target/release:{os.environ['PATH']}"}
    environment.pop("LD_PRELOAD", None)
    if arguments.cpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    script = [os.path.join(RECIPES, "ddp.py"), *arguments.arguments]
    ranks = str(arguments.ranks)
    bare = run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, *script],
               environment)["ranks"]
    pool = run([os.path.join(RECIPES, "torchrun.sh"), ranks, *script], environment)["ranks"]

    failures = []
    if len(bare) != arguments.ranks or len(pool) != arguments.ranks:
        failures.append(f"{len(bare)} and {len(pool)} ranks")
    if any(it["preloaded"] for it in bare) or not all(it["preloaded"] for it in pool):
        failures.append("preloaded where it should not be, or not where it should")
    for what in ("losses", "weights", "device"):
        if [it[what] for it in bare] != [it[what] for it in pool]:
            failures.append(f"{what} differ")
    kind = "cpu" if arguments.cpu else "cuda"
    if not all(it["device"].startswith(kind) for it in pool):
        failures.append(f"not on {kind}: {pool[0]['device']}")
    if failures:
        sys.exit(f"FAIL: {'; '.join(failures)}\n{json.dumps(bare)}\n{json.dumps(pool)}")
    used = lambda found: [it["device_used_bytes"] for it in found]
    found = json.dumps({"ranks": arguments.ranks, "device": kind, "identical": True,
                        "bare_device_used_bytes": used(bare), "pool_device_used_bytes": used(pool)})
    if arguments.out:
        with open(arguments.out, "w") as file:
            file.write(found + "\n")
    print(f"PASS: every rank preloaded, losses and weights identical\n{found}")


if __name__ == "__main__":
    main()
