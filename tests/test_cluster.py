"""Against a real `dask scheduler` and `dask worker` processes on loopback, as a user starts them."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from distributed import Client, LocalCluster
from numpy.testing import assert_array_equal

import snmf_dist
from snmf_dist import errors
from snmf_dist.engine import client as cluster
from tests.helpers import data_file, planted_graph

DASK = [sys.executable, "-m", "dask"]


@contextmanager
def process(*command, until, env=None):
    """Run `command` until the body is done; give what it printed that matches `until`."""
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **(env or {})},
    ) as child:
        printed = iter(child.stderr.readline, "")
        match = next(found for line in printed if (found := re.search(until, line)))
        drain = threading.Thread(target=child.stderr.read)  # or its pipe fills up
        drain.start()
        try:
            yield child, match.group()
        finally:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                child.kill()
            drain.join()


@contextmanager
def scheduler():
    command = (*DASK, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    with process(*command, until=r"tcp://127\.0\.0\.1:\d+") as (_, address):
        yield address


@contextmanager
def worker(address, env=None):
    command = (*DASK, "worker", address, "--host", "127.0.0.1", "--nthreads", "1", "--no-dashboard")
    with process(*command, until="Registered to", env=env) as (child, _):
        yield child


def run_cli(*arguments):
    command = [sys.executable, "-m", "snmf_dist", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def test_the_command_line_gives_the_same_labels_on_a_cluster_and_on_threads(tmp_path):
    with np.load(data_file("graphchallenge_sbm_20000.npz")) as file:
        edges, y = np.column_stack((file["src"], file["dst"])), file["y"]
    np.savetxt(tmp_path / "edges.tsv", edges, fmt="%d", delimiter="\t")
    np.save(tmp_path / "y.npy", y)
    done = run_cli(
        "import", tmp_path / "edges.tsv", tmp_path / "g.zarr", "--symmetrize", "max", "--block-rows", 10_000
    )
    assert done.returncode == 0, done.stderr

    settings = ("-k", 32, "--labels", tmp_path / "y.npy", "--max-iter", 60)
    on_threads = run_cli("fit", tmp_path / "g.zarr", *settings, "--out", tmp_path / "threads.zarr")
    with scheduler() as address, worker(address), worker(address):
        on_cluster = run_cli(
            "fit", tmp_path / "g.zarr", *settings, "--out", tmp_path / "cluster.zarr", "--scheduler", address
        )
    for done in (on_threads, on_cluster):
        assert done.returncode in (0, 1), done.stderr
    one, two = (snmf_dist.open_solution(tmp_path / f"{place}.zarr") for place in ("threads", "cluster"))
    assert (one.provenance["place"], two.provenance["place"]) == ("threads", "cluster")
    assert_array_equal(one.labels, two.labels)
    assert_array_equal(one.membership.compute(), two.membership.compute())
    assert snmf_dist.score(one.labels, y).accuracy > 0.8


def test_a_worker_killed_in_the_middle_changes_nothing(tmp_path):
    W, _ = planted_graph(200, 4, seed=7)
    graph = snmf_dist.import_graph(W, tmp_path / "g.zarr", block_rows=50, dtype="float64")

    class Killer(snmf_dist.Listener):
        def on_iteration(self, record, state):
            if record.iteration == 4 and self.victim:
                os.kill(self.victim, signal.SIGKILL)
                self.victim = None

        def on_wait(self, why):
            self.said = why

    settings = {"k": 4, "max_iter": 12, "tol": 1e-12, "block_rows": 50}
    with pytest.warns(errors.NotConverged):
        expected = snmf_dist.fit(graph, **settings)
    killer = Killer()
    with scheduler() as address, worker(address), worker(address), cluster.connect(address) as client:
        client.wait_for_workers(2, timeout=20)
        killer.victim = next(iter(client.run(os.getpid).values()))
        with pytest.warns(errors.NotConverged):
            found = snmf_dist.fit(graph, **settings, listeners=[killer])
        assert "a worker was lost" in killer.said
        assert_array_equal(found.membership.compute(), expected.membership.compute())


def test_no_scheduler_answers(tmp_path):
    begin = time.monotonic()
    with (
        pytest.raises(errors.ClusterError, match=r"no Dask scheduler answers there .*dask scheduler"),
        cluster.connect("tcp://127.0.0.1:9", timeout=1),
    ):
        pass
    assert time.monotonic() - begin < 30


def test_a_scheduler_without_workers():
    with (
        scheduler() as address,
        pytest.raises(errors.ClusterError, match="has no workers; start some with `dask worker tcp://"),
        cluster.connect(address, timeout=1),
    ):
        pass


def test_workers_of_another_version_are_refused(tmp_path, graph):
    """A worker whose environment says it has snmf-dist 9.9."""
    other = tmp_path / "site" / "snmf_dist-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: snmf-dist\nVersion: 9.9\n")
    with (
        scheduler() as address,
        worker(address, env={"PYTHONPATH": str(other.parent)}),
        cluster.connect(address),
        pytest.raises(errors.ClusterError, match=r"snmf-dist 9\.9 \(here 0\.1\.0\); install the same"),
    ):
        snmf_dist.fit(graph, 3)


def test_workers_that_do_not_see_the_graph_are_refused(client):
    with pytest.raises(errors.ClusterError, match="does not see /no/such/graph; put it on storage"):
        cluster.check_workers(client, "/no/such/graph")


def test_a_cluster_without_workers_is_refused(graph):
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as empty,
        Client(empty),
        pytest.raises(errors.ClusterError, match="has no workers"),
    ):
        snmf_dist.fit(graph, 3)


def test_a_graph_in_this_process_only_is_refused_on_a_cluster(client):
    snmf_dist.import_graph(planted_graph()[0], "memory://here/g.zarr", overwrite=True)
    with pytest.raises(errors.ClusterError, match=r"does not see memory://here/g\.zarr"):
        snmf_dist.fit("memory://here/g.zarr", 3)


def test_a_graph_replaced_under_a_run_is_noticed_on_a_cluster(tmp_path, client):
    graph = snmf_dist.import_graph(planted_graph()[0], tmp_path / "g.zarr")
    snmf_dist.import_graph(planted_graph(seed=1)[0], tmp_path / "g.zarr", overwrite=True)
    with pytest.raises(errors.StoreCorrupt, match="replaced while it was in use"):
        snmf_dist.fit(graph, 3)


def test_a_saved_result_outlives_the_client(graph, tmp_path, two_processes):
    with Client(two_processes):
        solution = snmf_dist.fit(graph, 3, rho=0.3, tol=1e-3, out=tmp_path / "r.zarr")
    assert solution.membership.compute().shape == (90, 3)


def test_a_lost_scheduler_is_an_error_in_words(graph):
    class Killer(snmf_dist.Listener):
        def on_iteration(self, record, state):
            child.kill()

    command = (*DASK, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    with (
        process(*command, until=r"tcp://127\.0\.0\.1:\d+") as (child, address),
        worker(address),
        cluster.connect(address),
        pytest.raises(errors.WorkLost, match="connection to the Dask scheduler was lost"),
    ):
        snmf_dist.fit(graph, 3, listeners=[Killer()])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_a_checkpoint_that_the_same_command_continues(tmp_path, number, code):
    W, _ = planted_graph(300, 3)
    snmf_dist.import_graph(W, tmp_path / "g.zarr", block_rows=100)
    arguments = ("fit", tmp_path / "g.zarr", "-k", 3, "--rho", 1e-4, "--tol", 1e-5, "--out", tmp_path / "r.zarr")
    command = [sys.executable, "-m", "snmf_dist", *map(str, arguments), "--max-iter", "1000000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as child:
        child.stdout.readline()
        child.stdout.readline()  # the run has begun
        child.send_signal(number)
        _, said = child.communicate(timeout=240)
    assert child.returncode == code
    assert f"interrupted; the same call continues from {tmp_path}/r.zarr.checkpoint" in said
    assert sorted(os.listdir(tmp_path)) == ["g.zarr", "r.zarr.checkpoint"]
    again = run_cli(*arguments, "--time-limit", 0.2, "--max-iter", 1_000_000)
    assert "continuing after iteration" in again.stdout
    assert again.returncode == 1
    assert f"the same command continues from {tmp_path}/r.zarr.checkpoint" in again.stdout.replace("\n", " ")
