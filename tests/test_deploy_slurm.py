"""deploy/slurm on a real slurmctld, three virtual nodes: time limits, a node that goes down, a killed launcher."""

import math
import os
import re
import runpy
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

import snmf_dist
from snmf_dist.ops.smoke import LABEL_HASH, plant
from tests.helpers import assert_a_kill_leaves_nothing, processes_with, wait_until

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
VIRTUAL = runpy.run_path(str(DEPLOY / "slurm" / "virtual.py"))
pytestmark = pytest.mark.skipif(bool(VIRTUAL["why_not"]()), reason=VIRTUAL["why_not"]())
LONG = {"init": "random", "rho": 0.03, "stop": "paper", "tol": 1e-12, "block_rows": 1000}
SIZE = ("--nodes", 3, "--mem", "1500M")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
    with VIRTUAL["virtual_cluster"](tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def graph(tmp_path):
    return snmf_dist.build_graph(plant()[0], tmp_path / "graph.zarr", exact=True)


def run(slurm, folder, *command, seconds=600):
    given = {**os.environ, **slurm.environment, "SNMF_PYTHON": sys.executable, "SNMF_INTERFACE": "lo"}
    line = [str(one) for one in command]
    return subprocess.run(line, env=given, cwd=folder, capture_output=True, text=True, timeout=seconds)


def fit_options(out, max_iter):
    options = {**LONG, "max_iter": max_iter}
    return [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)] + [
        "--out",
        out,
    ]


def same_as_undisturbed(graph, out, max_iter):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = snmf_dist.fit(graph, 8, max_iter=max_iter, **LONG)
    found = snmf_dist.open_solution(out)
    assert found.n_iter == whole.n_iter == max_iter
    assert (found.labels == whole.labels).all()
    assert (found.membership.compute() == whole.membership).all()


def log_of(folder):
    return "".join(path.read_text() for path in folder.glob("snmf-*.log"))


@pytest.mark.parametrize(
    ("node", "starts"),
    [pytest.param("n3", 1, marks=pytest.mark.slow), pytest.param("n1", 2, marks=pytest.mark.study)],
)
@pytest.mark.timeout(2400)
def test_a_fit_goes_on_when_a_node_goes_down(slurm, graph, tmp_path, node, starts):
    out, batch = tmp_path / "result.zarr", DEPLOY / "slurm" / "batch.sh"
    command = ("fit", graph.path, "-k", 8, *fit_options(out, 150), "--checkpoint-every", 5)
    run(slurm, tmp_path, "sbatch", *SIZE, batch, *command)
    checkpoint = Path(f"{out}.checkpoint")
    wait_until(lambda: checkpoint.exists() and len(list(checkpoint.iterdir())) > 1)
    slurm.node_down(node)
    try:
        if starts == 2:  # the batch script ran there: SLURM queues the job again
            wait_until(lambda: " PD" in slurm.ask("squeue", "-h", "-o", "%i %t"))
            slurm.node_up(node)
        wait_until(lambda: f" end {starts - 1}, exit code" in log_of(tmp_path))
    finally:
        if starts == 1:
            slurm.node_up(node)
    assert ("a worker was lost" in log_of(tmp_path)) == (starts == 1)
    assert log_of(tmp_path).count(" start ") == starts
    same_as_undisturbed(graph, out, 150)
    wait_until(lambda: not list(tmp_path.glob("snmf-*/tls")))  # no key is left


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_fit_whose_time_is_over_twice_is_queued_again_and_ends_as_the_undisturbed_one(slurm, graph, tmp_path):
    out, batch = tmp_path / "result.zarr", DEPLOY / "slurm" / "batch.sh"
    run(slurm, tmp_path, "sbatch", *SIZE, batch, "fit", graph.path, "-k", 8, *fit_options(out, 120))
    for restart in range(2):
        wait_until(lambda start=f" start {restart} ": iterates(log_of(tmp_path).partition(start)[2]), 600)
        job = slurm.ask("squeue", "-h", "-o", "%i").strip()
        slurm.ask("scancel", "--batch", "--signal", "USR1", job)  # what SLURM itself sends before the time limit
    wait_until(lambda: " end 2, exit code" in log_of(tmp_path), 600)
    said = log_of(tmp_path)
    assert said.count("queued again, to continue from the checkpoint") == 2, said
    assert said.count("from a checkpoint") == 2, said
    same_as_undisturbed(graph, out, 120)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_of_a_job_whose_command_is_killed_nothing_is_left(slurm, graph, tmp_path):
    out, batch = tmp_path / "result.zarr", DEPLOY / "slurm" / "batch.sh"
    run(slurm, tmp_path, "sbatch", *SIZE, batch, "fit", graph.path, "-k", 8, *fit_options(out, 10**6))
    wait_until(lambda: iterates(log_of(tmp_path)))
    (command,) = processes_with(f"-m\0snmf_dist\0fit\0{graph.path}")
    os.kill(command, signal.SIGKILL)
    wait_until(lambda: " end 0, exit code 137" in log_of(tmp_path))
    wait_until(lambda: not slurm.ask("squeue", "-h").strip())
    wait_until(lambda: not processes_with(tmp_path))  # scheduler and workers name their folder
    assert not list(tmp_path.glob("snmf-*/tls")), "no key is left"


def iterates(said):
    """Whether the table of a fit has a row."""
    return re.search(r"^ +\d+  +\d", said, flags=re.MULTILINE)


@pytest.mark.study
@pytest.mark.timeout(5400)
def test_a_fit_that_needs_three_time_limits_ends_as_the_undisturbed_one(slurm, graph, tmp_path):
    out, batch = tmp_path / "result.zarr", DEPLOY / "slurm" / "batch.sh"
    trial, begun = ("fit", graph.path, "-k", 8, *fit_options(out, 300)), time.monotonic()
    run(slurm, tmp_path, "sbatch", "--wait", *SIZE, batch, *trial)
    seconds = [record.seconds for record in snmf_dist.open_solution(out).history]
    start = time.monotonic() - begun - seconds[-1]  # of processes; a busy machine takes its time
    an_iteration = (seconds[-1] - seconds[99]) / 200  # the first ones take longer
    minutes = math.ceil((50 + 1.5 * start) / 60)
    max_iter = round(2.6 * (60 * minutes - 10 - start) / an_iteration)
    for path in tmp_path.glob("snmf-*.log"):
        path.unlink()
    limit = ("--time", f"00:{minutes:02}:00", "--signal", "B:USR1@10")
    command = ("fit", graph.path, "-k", 8, *fit_options(out, max_iter), "--overwrite")
    run(slurm, tmp_path, "sbatch", "--wait", *SIZE, *limit, batch, *command, seconds=4000)
    said = log_of(tmp_path)
    assert said.count("queued again, to continue from the checkpoint") >= 2, said
    assert said.count("from a checkpoint") >= 2
    same_as_undisturbed(graph, out, max_iter)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_launcher_runs_the_job_and_what_a_killed_one_left_is_gone(slurm, tmp_path):
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed (the extra slurm)")
    size = ("--workers", 2, "--memory", "1500MiB", "--interface", "lo", "--time", "00:10:00")
    launcher = (sys.executable, DEPLOY / "slurm" / "launcher.py", *size)
    smoke = ("--", "smoke", "--store", tmp_path, "--no-kill")
    done = run(slurm, tmp_path, *launcher, *smoke)
    assert f"{LABEL_HASH}, as expected" in done.stdout, done.stdout + done.stderr
    wait_until(lambda: not slurm.ask("squeue", "-h").strip(), 60)
    given = {**os.environ, **slurm.environment}
    # two of these fit on the nodes, the third waits
    line = [str(one) for one in (*launcher, "--workers", 4, *smoke)]
    with subprocess.Popen(line, env=given, cwd=tmp_path, stderr=subprocess.DEVNULL) as killed:
        wait_until(lambda: " R" in slurm.ask("squeue", "-h", "-o", "%i %t"), 60)
        killed.kill()
    done = run(slurm, tmp_path, *launcher, *smoke)
    assert "was left by a launcher that is dead; it is cancelled" in done.stderr
    assert f"{LABEL_HASH}, as expected" in done.stdout, done.stdout + done.stderr
    wait_until(lambda: not slurm.ask("squeue", "-h").strip(), 90)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_virtual_cluster_leaves_no_process_and_its_folder_goes_when_the_next_one_starts(tmp_path):
    assert_a_kill_leaves_nothing([sys.executable, str(DEPLOY / "slurm" / "virtual.py"), "--"], tmp_path)
