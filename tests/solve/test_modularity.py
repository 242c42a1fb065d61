import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from snmf_dist.rows import in_memory, load_blocks, rows_as, settle

from snmf_dist.solve.modularity import modularities
from tests import oracle


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**31))
def test_modularity_is_newmans_sum_over_pairs(n, K, partitions, seed):
    random = np.random.default_rng(seed)
    W = np.triu(random.random((n, n)) * (random.random((n, n)) < 0.5))
    W = W + W.T
    W[0, 0] += 1  # never without an edge
    labels = random.integers(-1, K, (n, partitions)).astype(np.int32)
    degree = W.sum(axis=1)
    weights = np.stack([np.ones(n), degree], axis=1)
    expected = [oracle.modularity(W, column) for column in labels.T]
    found = modularities(in_memory(sparse.csr_matrix(W)), in_memory(labels), in_memory(weights), K=K)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("rows", [3, 7, 20])
def test_blocks_change_nothing(rows):
    random = np.random.default_rng(0)
    W = sparse.random(20, 20, density=0.3, random_state=0)
    W = sparse.csr_matrix(W + W.T)
    labels = random.integers(-1, 3, (20, 2)).astype(np.int32)
    weights = np.stack([np.ones(20), np.asarray(W.sum(axis=1)).ravel()], axis=1)
    whole = modularities(in_memory(W), in_memory(labels), in_memory(weights), K=3)
    A = load_blocks(lambda start, stop: W[start:stop], np.append(np.arange(0, 20, rows), 20), W.dtype)
    lazy = modularities(A, rows_as(A, labels, dtype=np.int32), rows_as(A, weights, dtype=float), K=3)
    _, found = settle((), lazy)
    np.testing.assert_allclose(found, whole, rtol=1e-12)
