"""The words say the same in memory, on disk, of an A that is streamed, and on a cluster."""

import threading
import time
from itertools import pairwise

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Event
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from snmf_dist.engine.buffers import Buffers
from snmf_dist.engine.client import write_rows
from snmf_dist.engine.cluster import ClusterGraph
from snmf_dist.engine.disk import check_room, empty_on_disk
from snmf_dist.engine.halo import RowSource, find_needs, local_block
from snmf_dist.engine.loading import in_memory, load_local
from snmf_dist.engine.serving import ANSWER, BlockPlaces, RowServer, reorder_block
from snmf_dist.engine.tasks import array_from_reader
from snmf_dist.errors import NoRoom, RowsLost
from snmf_dist.solve.kernels import cross
from snmf_dist.solve.products import multiply

N = 37
X = np.random.default_rng(0).random((N, 3))


def symmetric(density=0.3, seed=0, n=N):
    upper = sparse.triu(sparse.random(n, n, density, random_state=seed))
    return sparse.csr_matrix(upper + upper.T)


A = symmetric()


def read_A(start, stop):
    return A[start:stop]


def read(start, stop, shift=0.0):
    return X[start:stop] + shift


def scaled(block, *, by):
    return block * by


def shifted(block):
    return block + 1


PLACES = ["memory", "streamed", "on disk"]


def graph_at(place, bounds, client=None):
    bounds = np.array(bounds)
    if place == "memory":
        return in_memory(A, bounds)
    if client is not None:
        return ClusterGraph(client, read_A, bounds, A.dtype, held=place == "cluster")
    how = {"held": place != "streamed", "on_disk": place == "on disk"}
    return load_local(read_A, A.nnz, A.dtype, parts=np.array([0, 20, N]), bounds=bounds, **how)


bounds = st.sets(st.integers(1, N - 1), max_size=20).map(lambda cuts: [0, *sorted(cuts), N])


def check_words(here):
    rows = here.hold(here.rows(read, 3, dtype=float))
    trace = here.central(np.trace, here.sum(cross, rows))
    product = here.fetch(multiply(here, rows))
    assert_array_equal(here.fetch(rows), X)
    whole = in_memory(A)
    assert_array_equal(product, whole.fetch(multiply(whole, whole.rows_from(X, dtype=float))))
    assert_allclose(product, A @ X)
    assert_allclose(here.fetch(here.map(scaled, rows, by=trace)), X * np.trace(X.T @ X))
    _, total = here.settle((), {"gram": here.sum(cross, rows), "known": 3})
    assert_allclose(total["gram"], X.T @ X)
    assert total["known"] == 3
    order = np.random.default_rng(1).permutation(N)
    assert_array_equal(here.reorder(rows, order).compute(), X[order])
    some = np.sort(order[:7])
    assert_array_equal(here.fetch(rows, some), X[some])
    for array in (X, da.from_array(X, chunks=(10, 3))):
        assert_array_equal(here.fetch(here.rows_from(array, dtype=float)), X)
        assert_array_equal(here.fetch(here.rows_from(array, dtype=float, order=order)), X[order])


@settings(deadline=None, max_examples=40)
@given(bounds, st.sampled_from(PLACES))
def test_each_word_says_everywhere_what_it_says_in_memory(bounds, place):
    check_words(graph_at(place, bounds))


@pytest.mark.parametrize("place", ["cluster", "streamed by workers"])
@pytest.mark.parametrize("cuts", [[0, N], [0, 10, N], [0, 3, 4, 11, 19, 20, 25, 30, 31, 33, N]])
def test_each_word_says_on_a_cluster_what_it_says_in_memory(client, place, cuts):
    check_words(graph_at(place, cuts, client))


@settings(deadline=None, max_examples=60)
@given(bounds, st.floats(0, 1), st.integers(0, 99))
def test_a_block_asks_for_the_rows_it_needs(bounds, density, seed):
    """Every block times [own rows | the rows it asked for] is its rows of the product."""
    cuts, M = np.array(bounds), symmetric(density, seed)
    parts = [X[start:stop] for start, stop in pairwise(cuts)]
    for i, own in enumerate(parts):
        rows = M[cuts[i] : cuts[i + 1]]
        needs = find_needs(rows.indices, cuts, i)
        block = local_block(rows, cuts, i, needs)
        halo = np.concatenate([own[:0], *(need.take(parts[need.block]) for need in needs)])
        assert len(halo) == sum(need.size for need in needs)
        local = sparse.csr_matrix((block.entries, block.columns, block.indptr), (len(own), len(own) + len(halo)))
        assert_allclose(local @ np.concatenate([own, halo]), rows @ X)


def test_dense_coupling_asks_for_whole_blocks_and_sparse_coupling_for_rows():
    cuts = np.array([0, 10, 20])
    M = sparse.lil_matrix((10, 20))
    M[:, 12] = 1
    (need,) = find_needs(sparse.csr_matrix(M).indices, cuts, 0)
    assert need.rows.tolist() == [2]
    (need,) = find_needs(sparse.csr_matrix(np.ones((10, 20))).indices, cuts, 0)
    assert need.rows is None


def ask_later(event, places):
    event.wait(30)
    return reorder_block(np.arange(3), 1, float, bounds=np.array([0, N]), places=places, source=RowSource("rows"))


def test_a_request_to_a_server_that_was_let_go_ends_soon(client):
    """A task that waits for it holds a thread of its worker, which the next run needs."""
    here, there = sorted(client.scheduler_info()["workers"])
    server = client.submit(RowServer, "gone", actor=True, workers=[there])
    event = Event("let go", client)
    places = client.scatter(BlockPlaces((there,), {there: server.result()}))  # as in a WorkerBlock: data
    asked = client.submit(ask_later, event, places, workers=[here], pure=False)
    time.sleep(0.5)  # the task has begun
    server.cancel(force=True)
    began = time.monotonic()
    event.set()
    with pytest.raises(RowsLost, match="let go of its rows"):
        asked.result()
    assert time.monotonic() - began < ANSWER / 2


def test_a_whole_graph_is_read_part_by_part():
    found = load_local(read_A, A.nnz, A.dtype, parts=np.array([0, 10, 11, N]), bounds=np.array([0, 20, N]))
    assert_array_equal(found.block.columns, A.indices)
    assert_array_equal(found.block.data, A.data)
    assert_array_equal(found.block.indptr, A.indptr)


@pytest.mark.parametrize(("held", "expected"), [(True, 2), (False, 3 * 2)])
def test_a_held_graph_is_read_once_and_a_streamed_one_in_every_sweep(held, expected):
    cuts, reads = np.array([0, 20, N]), []

    def counted(start, stop):
        reads.append((start, stop))
        return A[start:stop]

    here = load_local(counted, A.nnz, A.dtype, parts=cuts, bounds=cuts, held=held)
    rows = here.rows(read, 3, dtype=float)
    for _ in range(3):
        here.fetch(multiply(here, rows))
    assert len(reads) == expected


def test_rows_on_disk_leave_nothing_behind_and_come_back_when_they_were_let_go(tmp_path):
    with dask.config.set(temporary_directory=str(tmp_path)):
        here = graph_at("on disk", [0, 10, N])
        rows = here.rows(read, 3, dtype=float)
        rows.let_go()
        assert_allclose(here.fetch(multiply(here, rows)), A @ X)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_that_says_where():
    with pytest.raises(NoRoom, match=r"needs 9000000000\.00 GB for temporary files, but .* free"):
        check_room(9e18)
    with pytest.raises(NoRoom, match="temporary files"):
        empty_on_disk((1 << 50,), np.float64)


def test_what_was_begun_can_be_built_on_before_its_numbers_are_there(client):
    here = graph_at("cluster", [0, 10, N], client)
    rows = here.rows(read, 3, dtype=float)
    ((state, numbers),) = here.begin(((multiply(here, rows),), here.sum(cross, rows)))
    ((state, more),) = here.begin(((multiply(here, state[0]),), here.sum(cross, state[0])))
    assert_allclose(here.finish(numbers), X.T @ X)
    assert_allclose(here.finish(more), (A @ X).T @ (A @ X))
    assert_allclose(here.fetch(state[0]), A @ (A @ X))


def test_sweeps_in_a_row_without_a_sum_between_them_read_whole_rows(client):
    """Nothing but the engine's own barrier says that the rows of the other blocks are there."""
    here = graph_at("cluster", [0, 3, 4, 11, 19, 20, 25, 30, N], client)
    rows, expected = here.rows(read, 3, dtype=float), X
    for _ in range(6):
        rows, expected = multiply(here, rows), A @ expected
    assert_allclose(here.fetch(rows), expected)


def test_rows_are_found_where_they_were_moved_to(client):
    here = graph_at("cluster", [0, 10, 20, N], client)
    rows = here.hold(here.rows(read, 3, dtype=float))
    here.settle((rows,), {})
    for worker in client.scheduler_info()["workers"]:  # all on the one, then all on the other
        client.replicate(rows.futures, workers=[worker], n=1)
        client.rebalance(rows.futures, workers=[worker])
        assert_allclose(here.fetch(multiply(here, rows)), A @ X)


@pytest.mark.parametrize("on_cluster", [False, True])
def test_sums_are_the_same_bits_on_any_number_of_threads(on_cluster, request):
    results = []
    for workers in (1, 2, 7):
        with dask.config.set(num_workers=workers):
            here = graph_at("memory", range(N + 1))  # 37 blocks: three levels of the tree
            rows = here.rows(read, 3, dtype=float)
            results.append(here.settle((), here.sum(cross, rows))[1])
    if on_cluster:
        here = graph_at("cluster", range(N + 1), request.getfixturevalue("client"))
        results.append(here.settle((), here.sum(cross, here.rows(read, 3, dtype=float)))[1])
    for result in results[1:]:
        assert_array_equal(results[0], result)


def test_rows_that_may_be_written_over_are_unless_others_hold_them():
    here = graph_at("memory", [0, N])

    def shift(A, own, halo, old, *, out):
        out[0][:] = old + 1
        return 0

    def again(rows):
        (new,) = here.sweep(shift, rows, rows={"old": rows}, makes={"new": 3}, over={"new": "old"})
        return new

    first = here.rows_from(X, dtype=float)
    place = first.data.ctypes.data
    second = again(first)
    assert second.data.ctypes.data == place
    shown = second.array
    third = again(second)
    assert third.data.ctypes.data != place
    assert_array_equal(shown.compute(), X + 1)
    assert_array_equal(third.data, X + 2)


def test_written_blocks_begin_at_multiples_of_their_size():
    for rows in (array_from_reader(read, [0, 5, 30, N], 3, dtype=float), X):
        pieces = {}

        def write(start, block, pieces=pieces):
            pieces[start] = block
            return start + 1

        assert write_rows(rows, write, block_rows=8) == [1, 9, 17, 25, 33]
        assert_array_equal(np.concatenate([pieces[start] for start in sorted(pieces)]), X)


def test_rows_in_memory_are_shown_in_their_slices():
    shown = graph_at("memory", [0, 7, N]).rows_from(X, dtype=float).array
    assert shown.chunks == ((7, 30), (3,))
    assert_array_equal(shown.compute(), X)


def test_buffers_may_be_shared_by_threads():
    buffers, failures = Buffers(), []

    def work(seed):
        random = np.random.default_rng(seed)
        try:
            for _ in range(300):
                array = buffers.empty((4, int(random.integers(1, 9))), float)
                array[:] = seed
                if not (array == seed).all():
                    failures.append("two threads were lent the same memory")
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_memory_comes_back_when_the_last_view_is_gone():
    buffers = Buffers()
    array = buffers.empty((5, 2), float)
    place, view = array.ctypes.data, array[1:3]
    del array
    assert buffers.empty((5, 2), float).ctypes.data != place
    del view
    assert buffers.empty((5, 2), float).ctypes.data == place
