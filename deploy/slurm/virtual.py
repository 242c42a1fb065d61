"""A SLURM cluster of three virtual nodes on loopback, for tests: Debian's ``slurm-wlm`` and ``munge``.

    python deploy/slurm/virtual.py -- sbatch --wait deploy/slurm/batch.sh smoke --store /tmp

runs the command after ``--`` with the cluster's configuration in its environment (``SLURM_CONF``), and ends the
cluster, with all jobs on it, after that. It must be run as root.
"""

import argparse
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

scratch = runpy.run_path(str(Path(__file__).resolve().parents[1] / "scratch.py"))["scratch"]
NODES = ("n1", "n2", "n3")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "unshare", "setpriv")
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")  # of a node
WAIT = 120.0  # seconds for a daemon to answer
CONF = """
ClusterName=virtual
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[slurmctld]}
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SlurmdTimeout=10
KillWait=10
ReturnToService=2
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=4000 State=UNKNOWN\n"


def why_not() -> str:
    """What is missing here to run it; nothing if it can."""
    missing = [name for name in PROGRAMS if find(name) is None]
    if missing:
        return f"{', '.join(missing)} not found (Debian: apt-get install slurm-wlm munge)"
    if os.geteuid() != 0:
        return "virtual nodes need root"
    allowed = subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0
    return "" if allowed else "process namespaces are not allowed here"


def find(program: str) -> str | None:
    """Where a program is; daemons are in ``sbin``, which is not on everybody's path."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Virtual:
    """The daemons of a cluster.

    Parameters
    ----------
    folder : Path
        For the configuration, logs and state.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def up(self) -> None:
        """Start them, and wait until all nodes are idle."""
        host = socket.gethostname().partition(".")[0]
        ports = {name: free_port() for name in ("slurmctld", *NODES)}
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir(exist_ok=True)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        text = CONF.format(host=host, folder=self.folder, ports=ports)
        nodes = [NODE.format(name=name, host=host, port=ports[name]) for name in NODES]
        (self.folder / "slurm.conf").write_text("".join(nodes) + text, encoding="utf-8")
        files = {"key-file": key, "socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log"}
        options = [f"--{name}={self.folder / value}" for name, value in {**files, "seed-file": "seed"}.items()]
        self._start("munged", "--foreground", "--force", *options)
        self._wait((self.folder / "munge.socket").exists, "munged")
        self._start("slurmctld", "-D", "-f", self.environment["SLURM_CONF"])
        for name in NODES:
            self.node_up(name)
        self._wait(lambda: self.ask("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(len(NODES)), "slurmd")

    def node_up(self, name: str) -> None:
        """Start the daemon of a node, in a process namespace of its own: whatever it starts ends with it."""
        command = [find("slurmd") or "slurmd", "-D", "-N", name, "-f", self.environment["SLURM_CONF"]]
        self._start(*NAMESPACE, *command, name=name)

    def node_down(self, name: str) -> None:
        """Kill a node with all that runs on it, as when its power goes."""
        node = self.daemons.pop(name)
        node.kill()
        node.wait()

    def ask(self, *command: str) -> str:
        """What a command says."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60).stdout

    def down(self) -> None:
        """End the nodes, with all that runs on them, and the daemons."""
        for name in NODES:
            if name in self.daemons:
                self.node_down(name)
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _start(self, program: str, *options: str, name: str = "") -> None:
        with open(self.folder / f"{name or program}.out", "a", encoding="utf-8") as log:
            command = ["setpriv", "--pdeathsig", "KILL", find(program) or program, *options]  # it ends with us
            environment = {**os.environ, **self.environment}
            self.daemons[name or program] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def _wait(self, ready, what: str) -> None:
        until = time.monotonic() + WAIT
        while time.monotonic() < until:
            if ready():
                return
            time.sleep(0.2)
        raise SystemExit(f"{what} did not start; see the logs in {self.folder}")


@contextmanager
def virtual_cluster(folder: Path) -> Iterator[Virtual]:
    """Run the cluster for the body."""
    if missing := why_not():
        raise SystemExit(missing)
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Virtual(folder)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


def main() -> None:
    """Parse, and run a command beside a cluster."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where logs are kept; else they go with the cluster")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with scratch("slurm") as temporary, virtual_cluster(given.folder or temporary) as cluster:
        command = ["setpriv", "--pdeathsig", "TERM", *given.command]  # it ends with us
        done = subprocess.run(command, env={**os.environ, **cluster.environment})
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
