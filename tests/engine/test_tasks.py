"""An iteration on a cluster is few tasks, its state is Dask arrays, and nothing of a run outlives it there."""

import time

import dask.array as da
import numpy as np
import pytest
from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin
from scipy import sparse

import snmf_dist
from snmf_dist.solve.solvers import SOLVERS

pytestmark = pytest.mark.filterwarnings("ignore::snmf_dist.errors.ResultWarning")


def all_coupled(blocks, rows=12):
    """A ring, and an entry between each pair of blocks."""
    n = blocks * rows
    ring = sparse.diags_array([1.0], offsets=[1], shape=(n, n)).tolil()
    for i in range(blocks):
        for j in range(i):
            ring[i * rows + j % rows, j * rows + i % rows] = 0.5
    return sparse.csr_matrix(ring + ring.T)


class Count(SchedulerPlugin):
    name = "count"

    def __init__(self):
        self.executed = 0

    def transition(self, key, start, finish, *args, **kwargs):
        self.executed += (start, finish) == ("processing", "memory")


class Seen(snmf_dist.Listener):
    """The tasks done after each iteration; looks at the state only if it is asked to."""

    def __init__(self, count=None):
        self.count, self.tasks, self.types, self.sees_state = count, [], set(), count is None

    def on_iteration(self, record, state):
        if self.count is not None:
            self.tasks.append(self.count.executed)
        else:
            self.types |= {type(rows) for rows in state}
            self.chunks = {rows.chunks[0] for rows in state}
            self.block = state[0].blocks[0].compute()


@pytest.mark.parametrize("blocks", [2, 9])
def test_an_iteration_is_few_tasks_whatever_the_coupling(tmp_path, two_processes, blocks):
    graph = snmf_dist.import_graph(all_coupled(blocks), tmp_path / "g.zarr", reorder=False, block_rows=12)
    count = Count()
    two_processes.scheduler.add_plugin(count)
    seen = Seen(count)
    settings = {"init": "random", "rho": 0.3, "stop": "paper", "tol": 1e-6, "evaluate_every": 1000}
    try:
        with Client(two_processes):
            snmf_dist.fit(graph, 2, **settings, max_iter=25, block_rows=12, listeners=[seen])
    finally:
        two_processes.scheduler.remove_plugin("count")
    an_iteration = (seen.tasks[20] - seen.tasks[4]) / 16
    assert 9 * blocks <= an_iteration <= 10 * blocks + 10


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_the_state_of_every_solver_is_dask_arrays_in_row_blocks(graph, client, solver):
    seen = Seen()
    solution = snmf_dist.fit(graph, 3, solver=solver, init="random", max_iter=2, block_rows=25, listeners=[seen])
    assert seen.types == {da.Array}
    assert seen.chunks == {(25, 25, 25, 15)}
    assert type(seen.block) is np.ndarray
    assert {type(rows) for rows in solution.state} == {da.Array}


def on_worker():
    from snmf_dist.engine import serving

    return len(serving._rooms)


def test_what_a_run_keeps_on_the_workers_goes_with_it(graph, client):
    for _ in range(2):
        solution = snmf_dist.fit(graph, 3, init="random", max_iter=3)
    del solution
    for _ in range(100):  # the message to let go of it is on its way
        if set(client.run(on_worker).values()) == {0}:
            break
        time.sleep(0.1)
    assert set(client.run(on_worker).values()) == {0}
