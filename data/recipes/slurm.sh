#!/bin/sh
# A campaign as a Slurm job array, one shard a task:
#
#   sbatch --array=1-64 data/recipes/slurm.sh workload FILE DIR
#   sbatch --array=1-64 data/recipes/slurm.sh campaign FILE DIR
#
# Whatever was interrupted goes on where it was if the array is submitted again, with any number of tasks. Exit code 1 of glean says that
# other shards are not done yet, which is no failure of this task.
#SBATCH --cpus-per-task=1
#SBATCH --job-name=glean-replay

set -eu
kind=$1 file=$2 out=$3
shard=$((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN + 1))/$SLURM_ARRAY_TASK_COUNT

status=0
"${GLEAN:-glean}" replay "$kind" "$file" --out "$out" --shard "$shard" --threads "${SLURM_CPUS_PER_TASK:-1}" --json || status=$?
[ "$status" -le 1 ]
