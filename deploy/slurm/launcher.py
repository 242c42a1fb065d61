"""Workers as SLURM jobs of their own, by dask-jobqueue; scheduler and command run here, on a login node.

    python deploy/slurm/launcher.py --workers 8 --cores 4 --memory 16GiB --time 04:00:00 --interface ib0 \
        -- fit /shared/graph.zarr -k 20 --out /shared/result.zarr

A worker job that ends early, by its time limit or with its node, is replaced, and the command goes on. All of it
talks TLS, with certificates made for this run in `--run`. If this process is killed, workers end by themselves;
the next start finds the jobs that are left, says so and cancels them.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOST = socket.gethostname().partition(".")[0]


def cancel_leftovers() -> None:
    """Cancel worker jobs of launchers on this host that are dead."""
    listed = subprocess.run(["squeue", "--me", "-h", "-o", "%i %j"], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        number, _, name = line.partition(" ")
        pid = name.removeprefix(f"snmf-{HOST}-")
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            print(f"job {number} was left by a launcher that is dead; it is cancelled", file=sys.stderr)
            subprocess.run(["scancel", number], check=True)


def configure(run: Path) -> None:
    """Make certificates in `run`, and have Dask use them and `dask.yaml`, here and in all that is started here."""
    folder = run / "tls"
    shutil.rmtree(folder, ignore_errors=True)
    maker = HERE.parent / "local" / "tls" / "certificates.py"
    subprocess.run([sys.executable, maker, folder], check=True, stdout=subprocess.DEVNULL)
    shutil.copy(HERE / "dask.yaml", folder / "slurm.yaml")
    os.environ["DASK_CONFIG"] = str(folder)  # before dask is imported


def launch(given: argparse.Namespace, run: Path) -> int:
    """Start the workers, run the command, end the workers; the exit code of the command."""
    from dask_jobqueue import SLURMCluster
    from distributed.security import Security

    size = {"cores": given.cores, "processes": 1, "memory": given.memory, "walltime": given.time}
    place = {"interface": given.interface, "protocol": "tls://", "security": Security(), "python": sys.executable}
    with SLURMCluster(
        queue=given.queue,
        job_name=f"snmf-{HOST}-{os.getpid()}",
        log_directory=str(run),
        scheduler_options={"interface": given.interface, "dashboard_address": "127.0.0.1:0"},
        worker_extra_args=["--dashboard-address", "127.0.0.1:0"],
        job_script_prologue=[f"export DASK_CONFIG={os.environ['DASK_CONFIG']}"],
        **size,
        **place,
    ) as cluster:
        cluster.adapt(minimum=given.workers, maximum=given.workers)
        cluster.wait_for_workers(1)
        command = [sys.executable, "-m", "snmf_dist", *given.command, "--scheduler", cluster.scheduler_address]
        child = subprocess.Popen(command)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: child.send_signal(number))
        return child.wait()


def main() -> None:
    """Parse and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1, help="of each worker")
    parser.add_argument("--memory", default="4GiB", help="of each worker")
    parser.add_argument("--time", default="01:00:00", help="limit of each worker job")
    parser.add_argument("--queue", help="the partition")
    parser.add_argument("--interface", required=True, help="the network interface that nodes share, as ib0")
    parser.add_argument("--run", type=Path, default=Path("snmf-slurm"), help="folder for logs, seen by all nodes")
    parser.add_argument("command", nargs="+", help="of snmf-dist")
    given = parser.parse_args()
    run = given.run.resolve()
    run.mkdir(parents=True, exist_ok=True)
    cancel_leftovers()
    configure(run)
    try:
        code = launch(given, run)
    finally:
        shutil.rmtree(run / "tls", ignore_errors=True)
    raise SystemExit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
