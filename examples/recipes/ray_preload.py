#!/usr/bin/env python3
"""Ray: its workers on the pool, by the environment that they start in.

    python examples/recipes/ray_preload.py          # prints that environment, for `ray job submit`
    python examples/recipes/ray_preload.py --run    # starts a Ray here, asks a worker

The memcuda package has to be installed on every node at the same path: that of
the library is absolute. Ray's own processes and the driver are not preloaded.
"""
import json
import os
import sys

import memcuda


def runtime_env():
    """For `ray.init(runtime_env=...)`, or for one actor: `Actor.options(runtime_env=...)`."""
    settings = {name: value for name, value in os.environ.items() if name.startswith("MEMCUDA_")}
    return {"env_vars": {**settings, "LD_PRELOAD": memcuda.library_path()}}


def main():
    if sys.argv[1:] != ["--run"]:
        print(json.dumps(runtime_env()))
        return
    import ray

    ray.init(runtime_env=runtime_env())

    @ray.remote
    def ask():
        return memcuda.present(), {name: value for name, value in os.environ.items() if name.startswith("MEMCUDA_")}

    present, settings = ray.get(ask.remote())
    print(json.dumps({"worker_on_the_pool": present, "settings": settings}))
    sys.exit(0 if present else 1)


if __name__ == "__main__":
    main()
