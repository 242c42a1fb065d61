import dask
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from snmf_dist.rows import (
    central,
    export_rows,
    gather_rows,
    hold,
    in_blocks,
    load_rows,
    map_rows,
    multiply,
    settle,
    sum_rows,
    take_rows,
)  # fmt: skip
from snmf_dist.solve.kernels import gram

X = np.random.default_rng(0).random((37, 3))
FLOAT = np.empty((0, 0))


def read(start, stop, shift=0.0):
    return X[start:stop] + shift


def scaled(block, *, by):
    return block * by


def blocks(bounds, **scalars):
    return load_rows(read, bounds, 3, meta=FLOAT, **scalars)


bounds = st.sets(st.integers(1, 36), max_size=20).map(lambda cuts: [0, *sorted(cuts), 37])


@settings(deadline=None, max_examples=25)
@given(bounds)
def test_each_word_says_in_blocks_what_it_says_in_memory(bounds):
    rows = blocks(bounds)
    A = sparse.csr_matrix(X @ X.T)
    blocked_A = load_rows(lambda i, j: A[i:j], bounds, 37, meta=A[:0])
    trace = central(np.trace, sum_rows(gram, rows))
    assert_array_equal(gather_rows(rows), X)
    assert_allclose(gather_rows(multiply(blocked_A, rows)), A @ X)
    assert_allclose(gather_rows(map_rows(scaled, rows, by=trace)), X * np.trace(X.T @ X))
    _, total = settle((), sum_rows(gram, rows))
    assert_allclose(total, X.T @ X)


def test_loaded_rows_are_read_when_used_and_once_if_held():
    reads = []

    def counted(start, stop):
        reads.append((start, stop))
        return X[start:stop]

    lazy = load_rows(counted, [0, 20, 37], 3, meta=FLOAT)
    assert reads == []
    held = hold(lazy)
    for _ in range(3):
        gather_rows(held)
    assert sorted(reads) == [(0, 20), (20, 37)]


def test_settling_runs_shared_work_once():
    calls = []

    def heavy(block):
        calls.append(len(block))
        return block + 1

    rows = map_rows(heavy, blocks([0, 10, 37]))
    (kept,), numbers = settle((map_rows(scaled, rows, by=2.0),), {"total": sum_rows(gram, rows)})
    assert sorted(calls) == [10, 27]
    assert_allclose(numbers["total"], (X + 1).T @ (X + 1))
    gather_rows(kept)
    assert len(calls) == 2


def test_sums_are_the_same_bits_on_any_number_of_threads():
    rows = blocks(range(38))  # 37 blocks: three levels of the tree
    results = []
    for workers in (1, 2, 7):
        with dask.config.set(num_workers=workers):
            results.append(settle((), sum_rows(gram, rows))[1])
    assert_array_equal(results[0], results[1])
    assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("lazy", [True, False])
def test_exported_blocks_begin_at_multiples_of_their_size(lazy):
    rows = blocks([0, 5, 30, 37]) if lazy else X
    pieces = export_rows(rows, lambda start, block: (start, block), block_rows=8)
    assert [start for start, _ in pieces] == [0, 8, 16, 24, 32]
    assert_array_equal(np.concatenate([block for _, block in pieces]), X)


def test_rows_are_taken_in_another_order():
    order = np.random.default_rng(1).permutation(37)
    assert_array_equal(gather_rows(take_rows(blocks([0, 10, 37]), order)), X[order])


def test_matrices_in_memory_are_shown_as_one_block():
    (shown,) = in_blocks((X,))
    assert shown.chunks == ((37,), (3,))
    assert_array_equal(shown.compute(), X)
