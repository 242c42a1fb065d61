#!/usr/bin/env bash
# A Dask cluster inside one SLURM job, and one command of snmf-dist on it:
#
#     sbatch deploy/slurm/batch.sh fit /shared/graph.zarr -k 20 --out /shared/result.zarr
#
# Shortly before the time limit SLURM sends USR1: the command then writes a checkpoint and ends, the job is queued
# again, and the same command continues. See README.md in this folder.
#SBATCH --job-name=snmf
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=4G
#SBATCH --time=01:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --open-mode=append
#SBATCH --output=snmf-%j.log
set -euo pipefail

script=$(scontrol show job "$SLURM_JOB_ID" | sed -n 's/^ *Command=\([^ ]*\).*/\1/p')
here=$(dirname "$script")
run=$PWD/snmf-$SLURM_JOB_ID # on a folder that all nodes see: logs, certificates, the address
python=${SNMF_PYTHON:-python3}
restart=${SLURM_RESTART_COUNT:-0}
mkdir -p "$run"
command='' again=0
end_command() { [[ -z $command ]] || kill -TERM "$command" 2>/dev/null || true; } # it may have ended by itself
trap 'again=1; end_command' USR1
trap '[[ -n $command ]] || exit 143; end_command' TERM
echo "$(date -Is) start $restart on $SLURM_JOB_NODELIST"

# Everybody who reaches a Dask process without TLS can run code in it: this job has certificates of its own.
rm -rf "$run/tls" "$run/scheduler.json"
"$python" "$here/../local/tls/certificates.py" "$run/tls" >/dev/null
cp "$here/dask.yaml" "$run/tls/job.yaml"
export DASK_CONFIG=$run/tls
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
place=(--host 127.0.0.1) # one node needs no network
[[ ${SLURM_JOB_NUM_NODES:-1} == 1 ]] || place=(--interface "${SNMF_INTERFACE:?set it to the network interface between nodes, as ib0}")

"$python" -m dask scheduler "${place[@]}" --port 0 --dashboard-address 127.0.0.1:0 --scheduler-file "$run/scheduler.json" \
    >"$run/scheduler-$restart.log" 2>&1 &
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$run/tls"' EXIT
scheduler=$!
while [[ ! -s $run/scheduler.json ]]; do
    kill -0 $scheduler 2>/dev/null || { echo "the scheduler did not start; see $run/scheduler-$restart.log" && exit 3; }
    sleep 0.5
done

# Nine tenths of the allocation: the scheduler and the command itself take the rest.
memory=$((${SLURM_MEM_PER_NODE:-$((${SLURM_MEM_PER_CPU:-0} * ${SLURM_CPUS_PER_TASK:-1}))} * 9 / 10))MiB
[[ $memory != 0MiB ]] || memory=auto
# If the node of this script goes down, SLURM keeps the job with the other nodes, where workers end for want of a
# scheduler: whoever started them there has SLURM queue the job again.
export SNMF_FIRST_NODE=$SLURMD_NODENAME
# shellcheck disable=SC2016  # expanded on the node of the worker
guard='"$@"; while sleep 5; do
    [[ $(scontrol --oneliner show node "$SNMF_FIRST_NODE") == *" State=DOWN"* ]] && exec scontrol requeue "$SLURM_JOB_ID"
done'
srun --no-kill --kill-on-bad-exit=0 --wait=0 --output="$run/worker-$restart-%n.log" bash -c "$guard" guard \
    "$python" -m dask worker "${place[@]}" --scheduler-file "$run/scheduler.json" --dashboard-address 127.0.0.1:0 \
    --nthreads "${SLURM_CPUS_PER_TASK:-1}" --memory-limit "$memory" --local-directory "${TMPDIR:-/tmp}" &

address=$(sed -n 's/.*"address": "\(.*\)".*/\1/p' "$run/scheduler.json")
"$python" -m snmf_dist "$@" --scheduler "$address" &
command=$!
[[ $again == 0 ]] || end_command
while kill -0 $command 2>/dev/null; do wait $command || true; done # a signal ends a wait before the command ends
code=0
wait $command || code=$?
echo "$(date -Is) end $restart, exit code $code"
if [[ $again == 1 && $code == 143 && $restart -lt ${SNMF_RESTARTS:-100} ]]; then
    echo "the time limit is near: queued again, to continue from the checkpoint"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
