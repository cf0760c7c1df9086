#!/bin/bash
# A job of several nodes by Slurm, a process for each GPU, each of them on the pool:
#   sbatch examples/recipes/slurm.sh train.py --epochs 3
# memcuda is looked for on each node, so it may lie in different places there.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: sbatch slurm.sh SCRIPT [ARGUMENTS]" >&2; exit 2; }

# For torch.distributed: where the ranks meet.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=29500

# Settings of memcuda, if any: export MEMCUDA_LIMIT=40GiB
# --export=ALL hands all variables on, whatever the site's default is; LD_PRELOAD is
# set by `memcuda run` in the tasks alone, since srun and its daemons need none.
srun --export=ALL --kill-on-bad-exit=1 memcuda run -- bash -c '
    export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
    exec "${PYTHON:-python3}" -u "$@"' task "$@"
