import os

import dask
import pytest
from distributed import Client, LocalCluster

import snmf_dist
from tests.helpers import planted_graph

# Dask's profiler and clock would take processor time in every process of every cluster, also while it waits.
dask.config.set({"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"})
os.environ["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] = "False"  # for the processes that tests start
os.environ["DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL"] = "500ms"


@pytest.fixture(scope="session")
def two_processes():
    """A real cluster on loopback: two worker processes of one thread each."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


@pytest.fixture
def client(two_processes):
    with Client(two_processes) as client:
        yield client


@pytest.fixture(params=["threads", "processes"])
def place(request):
    """Where fit runs: Dask's threads, or two worker processes."""
    if request.param == "processes":
        request.getfixturevalue("client")
    return request.param


@pytest.fixture
def graph(tmp_path):
    """A planted graph of 90 rows in 3 groups, float64, in 4 blocks."""
    W, _ = planted_graph()
    return snmf_dist.import_graph(W, tmp_path / "graph.zarr", dtype="float64", block_rows=25)
