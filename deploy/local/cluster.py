"""A scheduler and workers as processes on this machine, on loopback only: ``up``, ``down``, ``status``.

    python deploy/local/cluster.py up --workers 2 --memory-limit 2GiB
    python deploy/local/cluster.py up --tls certs      # after `python deploy/local/tls/certificates.py certs`
    python deploy/local/cluster.py down

What was started is noted in the folder ``--run`` (process numbers, address, logs). ``up`` finds what an earlier
one left there, says so and removes it first.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
WAIT = 120.0  # seconds for a process to be ready, and to end
PATIENCE = 10.0  # seconds for a process that was interrupted, before it is killed
MARK = f"DASK_CONFIG={HERE / 'dask.yaml'}".encode()  # in the environment of all that is started here


def tls_options(folder: Path, who: str) -> list[str]:
    """The options of a process that talks TLS only."""
    ca, cert, key = (str((folder / name).resolve()) for name in ("ca.pem", f"{who}.pem", f"{who}.key"))
    return ["--protocol", "tls", "--tls-ca-file", ca, "--tls-cert", cert, "--tls-key", key]


def start(run: Path, name: str, *options: str) -> int:
    """Start a Dask process in a session of its own; its log is in `run`."""
    environment = {**os.environ, "DASK_CONFIG": str(HERE / "dask.yaml")}
    with open(run / f"{name}.log", "w", encoding="utf-8") as log:
        command = [sys.executable, "-m", "dask", *options]
        child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
    return child.pid


def wait_for(run: Path, name: str, pid: int, pattern: str) -> str:
    """What matches `pattern` in the log of a process, as soon as it is there."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        text = (run / f"{name}.log").read_text(encoding="utf-8")
        if found := re.search(pattern, text):
            return found.group()
        if has_ended(pid):
            break
        time.sleep(0.1)
    down(run)
    raise SystemExit(f"{name} did not start; see {run / f'{name}.log'}")


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or waits only for someone to take note of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def is_ours(pid: int) -> bool:
    """Whether the process lives and was started from here, in one step or more: numbers are used again."""
    try:
        return not has_ended(pid) and MARK in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def members(session: int) -> list[int]:
    """The living processes of a session of ours: what a Dask process started may outlive it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(int(process.name)) == session and is_ours(int(process.name)):
                found.append(int(process.name))
    return found


def up(run: Path, *, workers: int, threads: int, memory_limit: str, tls: Path | None) -> str:
    """Start all processes; the address of the scheduler."""
    if down(run):
        print(f"{run}: an earlier cluster was left here; its processes were ended", file=sys.stderr)
    run.mkdir(parents=True, exist_ok=True)
    loopback = ["--host", "127.0.0.1"]
    secure = [] if tls is None else tls_options(tls, "scheduler")
    scheduler = ["scheduler", *loopback, "--port", "0", "--dashboard-address", "127.0.0.1:0", *secure]
    pids = {"scheduler": start(run, "scheduler", *scheduler)}
    note(run, pids)
    address = wait_for(run, "scheduler", pids["scheduler"], r"(tcp|tls)://127\.0\.0\.1:\d+")
    secure = [] if tls is None else tls_options(tls, "worker")
    size = ["--nthreads", str(threads), "--memory-limit", memory_limit, "--local-directory", str(run / "spill")]
    for i in range(workers):
        name = f"worker-{i}"
        place = ["--name", name, "--dashboard-address", "127.0.0.1:0", *loopback]
        pids[name] = start(run, name, "worker", address, *place, *size, *secure)
        note(run, pids)
    for name, pid in pids.items():
        if name != "scheduler":
            wait_for(run, name, pid, "Registered to")
    (run / "address").write_text(address, encoding="utf-8")
    return address


def note(run: Path, pids: dict[str, int]) -> None:
    """Write down what runs before anything else is done, so that `down` finds it."""
    (run / "processes.json").write_text(json.dumps(pids), encoding="utf-8")


def down(run: Path) -> list[str]:
    """End what the folder knows of; the names of those that were alive."""
    file = run / "processes.json"
    pids = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    alive = {name: pid for name, pid in pids.items() if members(pid)}
    for pid in filter(is_ours, alive.values()):
        os.kill(pid, signal.SIGINT)
    begun = time.monotonic()
    while left := [one for pid in alive.values() for one in members(pid)]:
        waited = time.monotonic() - begun
        if waited > WAIT:
            raise SystemExit(f"processes {left} did not end; see {run}")
        for one in left if waited > PATIENCE else ():
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        reap(alive.values())
        time.sleep(0.1)
    for name in (file, run / "address"):
        name.unlink(missing_ok=True)
    return list(alive)


def reap(pids: Iterable[int]) -> None:
    """Take note of children that ended, if they are ours."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def main() -> None:
    """Parse and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["up", "down", "status"])
    parser.add_argument("--run", type=Path, default=Path("snmf-local"), help="folder for logs and process numbers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory-limit", default="2GiB", help="of each worker")
    parser.add_argument("--tls", type=Path, help="folder with certificates")
    given = parser.parse_args()
    run = given.run.resolve()
    if given.action == "up":
        size = {"workers": given.workers, "threads": given.threads, "memory_limit": given.memory_limit}
        print(up(run, **size, tls=given.tls))
    elif given.action == "down":
        print("ended: " + (", ".join(down(run)) or "nothing was running"))
    else:
        file = run / "processes.json"
        for name, pid in (json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}).items():
            print(f"{name} {pid} {'alive' if is_ours(pid) else 'gone'}")


if __name__ == "__main__":
    main()
