#!/bin/sh
# A job of several processes by torchrun, each of them on the pool:
#   examples/recipes/torchrun.sh RANKS [SCRIPT [ARGUMENTS]]    # without a script: ddp.py
# With --no-python torchrun starts for each rank what follows, here `memcuda run`:
# so every rank is preloaded, by an absolute path, and torchrun itself is not.
# MEMCUDA_* variables are passed on as all others.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
ranks=${1:?usage: torchrun.sh RANKS [SCRIPT [ARGUMENTS]]}
shift
[ $# -gt 0 ] || set -- "$here/ddp.py"
python=${PYTHON:-python3}
memcuda=$(command -v memcuda || echo "$here/../../target/release/memcuda")

# torchrun, of the same Python.
exec "$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" --no-python \
    "$memcuda" run -- "$python" -u "$@"
