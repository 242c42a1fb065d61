"""Memory is planned before a run and kept to; what does not fit in memory gives the same answer from disk."""

import os
import threading

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

import snmf_dist
from snmf_dist import errors
from snmf_dist.engine import disk
from snmf_dist.engine.plan import LEAST_ROWS, plan
from tests.benchmarks.measure import in_process
from tests.helpers import planted_graph


def ring(n, width=8):
    """Every row is joined to `width` on either side: quick to make at any size."""
    offsets = [d for d in range(-width, width + 1) if d]
    return sparse.diags_array([1.0] * len(offsets), offsets=offsets, shape=(n, n), format="csr")


def fitted(path, k, limit):
    """Run in a process of its own: what was planned."""
    found = snmf_dist.fit(path, k, max_iter=3, memory_limit=limit)
    return {"way": found.provenance["way"], "planned": found.provenance["planned_bytes"]}


@pytest.mark.parametrize(("n", "way"), [(2_000, "in memory"), (80_000, "in memory"), (160_000, "on disk")])
def test_the_peak_is_what_was_planned(tmp_path, n, way):
    graph = snmf_dist.import_graph(ring(n), tmp_path / "g.zarr", reorder=False)
    planned = next(found for found in snmf_dist.plan_fit(graph, 20, memory_limit="1TB").ways if found.name == way)
    limit = int(1.001 * planned.process)
    cost = in_process("tests.test_memory", "fitted", path=graph.path, k=20, limit=limit)
    assert cost.result["way"] == way
    assert cost.result["planned"] / 3 <= cost.rss <= cost.result["planned"]


@pytest.mark.parametrize("settings", [{}, {"init": "random", "n_init": 2}, {"solver": "hals"}, {"solver": "apg"}])
def test_held_streamed_and_on_disk_give_the_same_bits(tmp_path, settings, monkeypatch):
    graph = snmf_dist.import_graph(planted_graph(300, 3)[0], tmp_path / "g.zarr", block_rows=40)
    ways = []
    for name in ("in memory", "A streamed", "on disk"):
        monkeypatch.setattr("snmf_dist.api.plan", lambda *a, name=name, **k: only(name, plan(*a, **k)))
        ways.append(snmf_dist.fit(graph, 3, **settings))
        assert ways[-1].provenance["way"] == name
    for other in ways[1:]:
        assert_array_equal(ways[0].membership.compute(), other.membership.compute())
        assert ways[0].history[-1].objective == other.history[-1].objective


def only(name, planned):
    """A plan in which one way is the only one that fits."""
    way = next(way for way in planned.ways if way.name == name)
    return type(planned)(way, planned.ways, planned.limit, planned.workers)


def test_a_limit_that_cannot_be_kept_is_refused_before_work_starts(graph):
    class Started(snmf_dist.Listener):
        def on_start(self, settings):
            pytest.fail("work started")

    with pytest.raises(errors.DoesNotFit, match=r"needs at least .* MB .* but may use 100 MB"):
        snmf_dist.fit(graph, 3, memory_limit="100MB", listeners=[Started()])
    with pytest.raises(errors.InputError, match="expected bytes, or text as '4GiB'"):
        snmf_dist.fit(graph, 3, memory_limit="lots")


def test_files_that_do_not_fit_on_disk_are_refused_before_work_starts(graph, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10})())
    monkeypatch.setattr("snmf_dist.api.plan", lambda *a, **k: only("on disk", plan(*a, **k)))
    with pytest.raises(errors.NoRoom, match="GB are free; give more memory, free some room, or set Dask's"):
        snmf_dist.fit(graph, 3)


def test_less_memory_means_a_slower_way_and_smaller_slices():
    ways = [plan(10_000_000, 300_000_000, 20, memory=m, stored_rows=65_000) for m in (1e11, 6.8e9, 3e9)]
    assert [found.way.name for found in ways] == ["in memory", "A streamed", "on disk"]
    small = plan(100_000_000, 3_000_000_000, 20, memory=12e9, stored_rows=65_000, halo=0.5).way
    assert small.block_rows >= LEAST_ROWS
    assert small.disk > 40e9


def test_a_cluster_shares_the_rows():
    one, four = (plan(10**7, 3 * 10**8, 20, workers=w, threads=2).way for w in (1, 4))
    assert four.process < one.process / 2


class Written(snmf_dist.Listener):
    """Counts what each iteration writes to files; pages go to the disk between iterations, if not before."""

    sees_state = False

    def __init__(self, flush):
        self.flush, self.seen = flush, []

    def on_iteration(self, record, state):
        self.flush()
        with open("/proc/self/io", encoding="utf-8") as file:
            self.seen.append(next(int(line.split()[1]) for line in file if line.startswith("write_bytes")))


@pytest.mark.skipif(
    not os.path.exists("/proc/self/io"), reason="the bytes of a process are counted by Linux alone"
)
@pytest.mark.parametrize("eager", [False, True])
def test_an_iteration_on_disk_writes_its_state_once(tmp_path, monkeypatch, eager):
    n, k, arrays, stop = 50_000, 16, [], threading.Event()

    def recorded(shape, dtype):
        arrays.append(disk.empty_on_disk(shape, dtype))
        return arrays[-1]

    def flush():
        for array in arrays:
            array.base.flush()

    def flush_always():
        while not stop.wait(0.002):
            flush()

    made = snmf_dist.generate("graph", tmp_path / "made", n, k, degree=20, exponent=np.inf)
    graph = snmf_dist.import_graph(made.data, tmp_path / "g.zarr", n=n, symmetrize="max", reorder=False)
    monkeypatch.setattr("snmf_dist.engine.local.empty_on_disk", recorded)
    monkeypatch.setattr("snmf_dist.api.plan", lambda *a, **k: only("on disk", plan(*a, **k)))
    listener, writer = Written(flush), threading.Thread(target=flush_always)
    if eager:  # the system may write pages back at any time: those that change again are then written again
        writer.start()
    try:
        options = {"init": "random", "rho": 0.3, "max_iter": 8, "evaluate_every": 100}
        with pytest.warns(errors.NotConverged):
            snmf_dist.fit(graph, k, listeners=[listener], **options)
    finally:
        stop.set()
        if eager:
            writer.join()
    if not listener.seen[-1]:
        pytest.skip("the file system of temporary files does not count what is written")
    share = np.diff(listener.seen)[1:-1] / (5 * n * k * 4)  # X, Y, L, Λ and Γ
    assert share.min() > 0.9
    assert share.max() < 1.5
