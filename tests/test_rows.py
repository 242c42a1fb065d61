"""The words say the same in memory, on disk, in blocks, and of an A that is streamed."""

from functools import partial
from itertools import pairwise

import dask
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from snmf_dist.errors import NoRoom
from snmf_dist.halo import local_block
from snmf_dist.ondisk import check_room, empty_on_disk
from snmf_dist.rows import (
    begin,
    central,
    finish,
    hold,
    in_blocks,
    in_memory,
    load_blocks,
    load_whole,
    map_rows,
    multiply,
    rows_as,
    rows_like,
    settle,
    sum_rows,
    sweep,
)  # fmt: skip
from snmf_dist.solve.kernels import cross, product
from snmf_dist.stored import export_rows, gather_rows, load_rows, take_rows
from snmf_dist.whole import Whole

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


PLACES = ["memory", "streamed", "on disk", "blocks", "streamed blocks"]


def graph_at(place, bounds):
    bounds = np.array(bounds)
    if place == "memory":
        return in_memory(A, bounds)
    if place in ("streamed", "on disk"):
        how = {"held": place != "streamed", "on_disk": place == "on disk"}
        return load_whole(read_A, A.nnz, A.dtype, parts=np.array([0, 20, N]), bounds=bounds, **how)
    return load_blocks(read_A, bounds, A.dtype, held=place == "blocks")


bounds = st.sets(st.integers(1, N - 1), max_size=20).map(lambda cuts: [0, *sorted(cuts), N])


@settings(deadline=None, max_examples=40)
@given(bounds, st.sampled_from(PLACES))
def test_each_word_says_everywhere_what_it_says_in_memory(bounds, place):
    here = graph_at(place, bounds)
    rows = hold(rows_like(here, read, 3, dtype=float))
    trace = central(np.trace, sum_rows(cross, rows))
    assert_array_equal(gather_rows(rows), X)
    assert_array_equal(gather_rows(multiply(here, rows)), gather_rows(multiply(in_memory(A), in_memory(X))))
    assert_allclose(gather_rows(multiply(here, rows)), A @ X)
    assert_allclose(gather_rows(map_rows(scaled, rows, by=trace)), X * np.trace(X.T @ X))
    _, total = settle((), {"gram": sum_rows(cross, rows)})
    assert_allclose(total["gram"], X.T @ X)
    order = np.random.default_rng(1).permutation(N)
    assert_array_equal(gather_rows(take_rows(rows, order)), X[order])
    assert_array_equal(gather_rows(rows_as(here, in_blocks((rows,))[0], dtype=float)), X)


@settings(deadline=None, max_examples=60)
@given(bounds, st.floats(0, 1), st.integers(0, 99))
def test_a_block_asks_for_the_rows_it_needs(bounds, density, seed):
    """Every block times [own rows | the rows it asked for] is its rows of the product."""
    cuts, M = np.array(bounds), symmetric(density, seed)
    parts = [X[start:stop] for start, stop in pairwise(cuts)]
    for i, own in enumerate(parts):
        rows = M[cuts[i] : cuts[i + 1]]
        block = local_block(rows, cuts, i)
        halo = np.concatenate([own[:0], *(need.take(parts[need.block]) for need in block.needs)])
        local = sparse.csr_matrix((block.entries, block.columns, block.indptr), (len(own), len(own) + len(halo)))
        assert_allclose(local @ np.concatenate([own, halo]), rows @ X)
        again = local_block(rows, cuts, i, block.needs)
        assert_array_equal(again.indices, block.indices)


def test_dense_coupling_asks_for_whole_blocks_and_sparse_coupling_for_rows():
    cuts = np.array([0, 10, 20])
    M = sparse.lil_matrix((10, 20))
    M[:, 12] = 1
    (need,) = local_block(sparse.csr_matrix(M), cuts, 0).needs
    assert need.rows.tolist() == [2]
    (need,) = local_block(sparse.csr_matrix(np.ones((10, 20))), cuts, 0).needs
    assert need.rows is None


def test_a_whole_graph_is_read_part_by_part():
    found = load_whole(read_A, A.nnz, A.dtype, parts=np.array([0, 10, 11, N]), bounds=np.array([0, 20, N]))
    assert_array_equal(found.block.columns, A.indices)
    assert_array_equal(found.block.data, A.data)
    assert_array_equal(found.block.indptr, A.indptr)


def test_a_held_graph_is_read_once_and_a_streamed_one_in_every_sweep():
    cuts = np.array([0, 20, N])
    for load, held, expected in (
        (load_blocks, True, 2),
        (load_blocks, False, 2 + 3 * 2),
        (partial(load_whole, nnz=A.nnz, parts=cuts), True, 2),
        (partial(load_whole, nnz=A.nnz, parts=cuts), False, 3 * 2),
    ):
        reads = []

        def counted(start, stop, reads=reads):
            reads.append((start, stop))
            return A[start:stop]

        here = load(counted, bounds=cuts, dtype=A.dtype, held=held)
        rows = hold(rows_like(here, read, 3, dtype=float))
        for _ in range(3):
            gather_rows(multiply(here, rows))
        assert len(reads) == expected


def test_rows_on_disk_leave_nothing_behind_and_come_back_when_they_were_let_go(tmp_path):
    with dask.config.set(temporary_directory=str(tmp_path)):
        here = graph_at("on disk", [0, 10, N])
        rows = rows_like(here, read, 3, dtype=float)
        rows.let_go()
        assert_allclose(gather_rows(multiply(here, rows)), A @ X)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_that_says_where():
    with pytest.raises(NoRoom, match=r"needs 9000000000\.00 GB for temporary files, but .* free"):
        check_room(9e18)
    with pytest.raises(NoRoom, match="temporary files"):
        empty_on_disk((1 << 50,), np.float64)


def test_settling_runs_shared_work_once():
    calls = []

    def heavy(block):
        calls.append(len(block))
        return block + 1

    here = graph_at("blocks", [0, 10, N])
    rows = map_rows(heavy, rows_like(here, read, 3, dtype=float))
    (kept,), numbers = settle((map_rows(scaled, rows, by=2.0),), {"total": sum_rows(cross, rows)})
    assert sorted(calls) == [10, 27]
    assert_allclose(numbers["total"], (X + 1).T @ (X + 1))
    gather_rows(kept)
    assert len(calls) == 2


def test_what_was_begun_can_be_gone_on_from_before_its_numbers_are_there():
    here = graph_at("blocks", [0, 10, N])
    rows = rows_like(here, read, 3, dtype=float)
    ((state, numbers),) = begin(((multiply(here, rows),), sum_rows(cross, rows)))
    ((state, more),) = begin(((multiply(here, state[0]),), sum_rows(cross, state[0])))
    assert_allclose(finish(numbers), X.T @ X)
    assert_allclose(finish(more), (A @ X).T @ (A @ X))
    assert_allclose(gather_rows(state[0]), A @ (A @ X))


@pytest.mark.parametrize("place", ["memory", "blocks"])
def test_sums_are_the_same_bits_on_any_number_of_threads(place):
    here = graph_at(place, range(N + 1))  # 37 blocks: three levels of the tree
    rows = hold(rows_like(here, read, 3, dtype=float))
    results = []
    for workers in (1, 2, 7):
        with dask.config.set(num_workers=workers):
            results.append(settle((), sum_rows(cross, rows))[1])
    assert_array_equal(results[0], results[1])
    assert_array_equal(results[0], results[2])


def test_rows_that_may_be_written_over_are_unless_others_hold_them():
    here = graph_at("memory", [0, N])

    def copy(A, own, halo, rows, *, out):
        out[0][:] = rows + 1
        return 0

    first = Whole(X.copy(), here.bounds)
    place = first.array.ctypes.data
    (second,), _ = sweep(copy, here, first, first, widths=[3], over=[0])
    assert second.array.ctypes.data == place
    shown = in_blocks((second,))[0]
    (third,), _ = sweep(copy, here, second, second, widths=[3], over=[0])
    assert third.array.ctypes.data != place
    assert_array_equal(shown.compute(), X + 1)
    assert_array_equal(third.array, X + 2)


def test_a_sweep_without_results_gives_its_sums():
    here = graph_at("blocks", [0, 10, 20, N])
    rows = rows_like(here, read, 3, dtype=float)
    made, total = sweep(product, here, rows, widths=[3])
    assert finish(total) == 0
    assert len(made) == 1


def test_exported_blocks_begin_at_multiples_of_their_size():
    for rows in (load_rows(read, [0, 5, 30, N], 3, meta=np.empty((0, 0))), X):
        pieces = export_rows(rows, lambda start, block: (start, block), block_rows=8)
        assert [start for start, _ in pieces] == [0, 8, 16, 24, 32]
        assert_array_equal(np.concatenate([block for _, block in pieces]), X)


def test_matrices_in_memory_are_shown_in_their_slices():
    (shown,) = in_blocks((in_memory(X, [0, 7, N]),))
    assert shown.chunks == ((7, 30), (3,))
    assert_array_equal(shown.compute(), X)
