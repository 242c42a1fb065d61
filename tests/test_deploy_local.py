"""deploy/local: processes on loopback, with and without TLS, as a user starts them; and what doctor says."""

import gc
import os
import re
import runpy
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import dask
import pytest
from distributed import Client
from distributed.comm import CommClosedError
from distributed.security import Security

from snmf_dist.engine.client import connect
from snmf_dist.errors import ClusterError
from snmf_dist.ops.doctor import WRONG, examine
from snmf_dist.ops.smoke import LABEL_HASH, partition_hash, plant
from tests.helpers import wait_until

pytestmark = pytest.mark.timeout(900)  # for a hang: these tests start many processes, and machines may be busy
LOCAL = Path(__file__).resolve().parents[1] / "deploy" / "local"


def command(*arguments, check=True, **settings):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=check,
        timeout=400,
        **settings,
    )


def up(run, *options):
    done = command(LOCAL / "cluster.py", "up", "--run", run, *options)
    return done.stdout.strip(), done.stderr


def down(run):
    return command(LOCAL / "cluster.py", "down", "--run", run).stdout


def listening(run):
    """The addresses that the processes of a cluster, and their children, listen on."""
    if shutil.which("ss") is None:
        pytest.skip("ss (iproute2) is not installed")
    said = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    ours = {int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and belongs_to(p, run)}
    return [
        line.split()[3].rpartition(":")[0]
        for line in said.splitlines()
        if ours & {int(pid) for pid in re.findall(r"pid=(\d+)", line)}
    ]


def belongs_to(process, run):
    try:
        return str(run).encode() in (process / "cmdline").read_bytes() or os.getsid(int(process.name)) in sessions(
            run
        )
    except OSError:
        return False


members = runpy.run_path(str(LOCAL / "cluster.py"))["members"]


def sessions(run):
    text = (run / "processes.json").read_text() if (run / "processes.json").exists() else ""
    return {int(pid) for pid in re.findall(r": (\d+)", text)}


def test_the_expected_hash_is_that_of_the_planted_groups():
    assert partition_hash(plant()[1]) == LABEL_HASH


def test_smoke_on_threads_gives_the_expected_hash(tmp_path):
    done = command("-m", "snmf_dist", "smoke", "--store", tmp_path)
    assert f"{LABEL_HASH}, as expected" in done.stdout


def test_the_doctor_removes_what_a_killed_one_left(tmp_path):
    old, new = (tmp_path / f".snmf-doctor-{at:.0f}-0123456789ab" for at in (1e9, time.time()))
    old.touch()
    new.touch()  # another doctor is at work
    said = [one.found for one in examine(store=str(tmp_path))]
    assert f"{tmp_path}: what a killed doctor left was removed (files: 1)" in said
    assert list(tmp_path.iterdir()) == [new]
    assert not any("killed" in one.found for one in examine(store=str(tmp_path)))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    run = tmp_path_factory.mktemp("local")
    address, _ = up(run)
    yield run, address
    down(run)


def test_a_local_cluster_listens_on_loopback_only(cluster):
    found = listening(cluster[0])
    assert len(found) >= 3
    assert set(found) == {"127.0.0.1"}


def test_a_frozen_worker_is_named_and_not_waited_for(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("snmf_dist.engine.asking.ANSWER_WITHIN", 5.0)
    with connect(cluster[1]) as client:
        pids = client.run(os.getpid)
        frozen, pid = next(iter(pids.items()))
        os.kill(pid, signal.SIGSTOP)
        try:
            found = [one for one in examine(client, store=str(tmp_path)) if one.state == WRONG]
        finally:
            os.kill(pid, signal.SIGCONT)
    assert [(one.what, one.found) for one in found] == [(f"worker {frozen}", "no answer within 5 s")]


def test_the_doctor_finds_nothing_wrong(cluster, tmp_path):
    done = command("-m", "snmf_dist", "doctor", "--scheduler", cluster[1], "--store", tmp_path)
    assert "wrong" not in done.stdout
    assert "listens on loopback only (no TLS)" in done.stdout


def test_the_smoke_job_gives_the_expected_hash_on_processes(cluster, tmp_path):
    done = command("-m", "snmf_dist", "smoke", "--scheduler", cluster[1], "--store", tmp_path, "--no-kill")
    assert f"{LABEL_HASH}, as expected" in done.stdout
    assert "cluster, 2 workers" in done.stdout


@pytest.mark.slow
def test_over_tls_a_killed_worker_costs_nothing_a_killed_client_leaves_no_task_and_a_killed_cluster_no_process(
    tmp_path,
):
    certs, run, store = tmp_path / "certs", tmp_path / "run", tmp_path / "store"
    make_certificates(certs)
    store.mkdir()
    address, _ = up(run, "--tls", certs)
    given = {**os.environ, "DASK_CONFIG": str(certs / "dask.yaml")}
    smoke = [sys.executable, "-m", "snmf_dist", "smoke", "--scheduler", address, "--store", str(store)]
    with subprocess.Popen([*smoke, "--no-kill"], env=given) as killed:
        wait_until((store / "smoke-result.zarr.checkpoint").exists)
        killed.kill()
    files = {"client.cert": "client.pem", "client.key": "client.key", "ca-file": "ca.pem"}
    settings = {f"distributed.comm.tls.{name}": str(certs / file) for name, file in files.items()}
    with dask.config.set(settings), connect(address) as client:
        wait_until(lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0)
    done = command(*smoke[1:], env=given)
    assert f"{LABEL_HASH}, as expected" in done.stdout
    assert "worker killed           tls://127.0.0.1" in done.stdout
    assert {one.name for one in store.iterdir()} == {"smoke-graph.zarr", "smoke-result.zarr"}
    before = sessions(run)
    os.kill(max(before), signal.SIGKILL)  # a worker's nanny: what it started must not stay
    _, said = up(run, "--workers", 1)
    assert "an earlier cluster was left here; its processes were ended" in said
    assert not any(map(members, before))
    assert "scheduler, worker-0" in down(run)
    assert listening(run) == []


def make_certificates(*folders):
    """An authority with its certificates in each folder; a skip where they cannot be made."""
    pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
    make = runpy.run_path(str(LOCAL / "tls" / "certificates.py"))["make"]
    for folder in folders:
        make(folder)


@pytest.mark.slow
def test_workers_with_another_numpy_without_the_path_or_with_little_memory_are_each_named(tmp_path):
    hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
    shared, site, run = tmp_path / "shared", tmp_path / "site", tmp_path / "run"
    for folder in (shared / "in", site / "numpy-1.0.dist-info", tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
    (site / "numpy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0\n")
    if subprocess.run([*hide, shared, "true"], capture_output=True).returncode:
        pytest.skip("a folder can be hidden from a worker only where mount namespaces are allowed")
    address, _ = up(run, "--workers", 1)
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    odd = {"numpy": ([], "2GiB", {"PYTHONPATH": path}), "memory": ([], "200MiB", {})}
    odd["path"] = ([*hide, shared], "2GiB", {})
    started = [start_worker(address, tmp_path / "elsewhere", *how) for how in odd.values()]
    try:
        with connect(address) as client:
            client.wait_for_workers(4, timeout=300)
        given = ("--scheduler", address, "--store", shared / "in")
        done = command("-m", "snmf_dist", "doctor", *given, check=False)
    finally:
        for worker in started:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        down(run)
    assert done.returncode == 1
    wrong = re.findall(r"^wrong +worker (\S+): (.*)$", done.stdout, flags=re.MULTILINE)
    for expected in ("numpy 1.0 (here", "memory limit of 200 MiB, too little", "shared/in: does not see it"):
        assert sum(expected in text for _, text in wrong) == 1, done.stdout
    assert len({worker for worker, _ in wrong}) == 3


def start_worker(address, folder, before, memory, environment):
    """A worker beside those of the cluster, started by other means."""
    size = ["--memory-limit", memory, "--nthreads", "1", "--local-directory", folder]
    place = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
    line = [*before, sys.executable, "-m", "dask", "worker", address, *size, *place]
    given = {**os.environ, **environment}
    with open(folder / f"{memory}.log", "a") as log:
        return subprocess.Popen(
            [str(one) for one in line], env=given, stdout=log, stderr=log, start_new_session=True
        )


def test_over_tls_the_same_job_runs_and_strangers_are_refused(tmp_path):
    make_certificates(tmp_path / "ours", tmp_path / "theirs")
    run = tmp_path / "run"
    address, _ = up(run, "--tls", tmp_path / "ours")
    try:
        assert address.startswith("tls://")
        assert set(listening(run)) == {"127.0.0.1"}
        environment = {**os.environ, "DASK_CONFIG": str(tmp_path / "ours" / "dask.yaml")}
        arguments = ("smoke", "--scheduler", address, "--store", tmp_path, "--no-kill")
        done = command("-m", "snmf_dist", *arguments, env=environment)
        assert f"{LABEL_HASH}, as expected" in done.stdout
        refuse_strangers(address, tmp_path / "ours", tmp_path / "theirs")
    finally:
        down(run)


def refuse_strangers(address, ours, theirs):
    """Clients that talk plain TCP, or have no certificate of this authority, are refused, not left waiting."""
    plain, (host, port) = address.replace("tls", "tcp"), address.removeprefix("tls://").split(":")
    for place in (address, plain):  # one has no settings of TLS, so it does not even ask
        with pytest.raises(ClusterError, match="no Dask scheduler answers there"), connect(place, timeout=120):
            pass
    files = {"tls_client_cert": str(theirs / "client.pem"), "tls_client_key": str(theirs / "client.key")}
    for authority in (ours, theirs):
        gc.collect()  # as `connect` does before it makes a client
        security = Security(require_encryption=True, tls_ca_file=str(authority / "ca.pem"), **files)
        with pytest.raises(CommClosedError):  # a wait that is over is another error
            Client(address, security=security, timeout=120)
    bare = ssl.create_default_context(cafile=ours / "ca.pem")
    bare.check_hostname = False
    with (
        socket.create_connection((host, int(port)), timeout=120) as line,
        bare.wrap_socket(line) as secure,
        pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"),
    ):
        secure.recv(1)
