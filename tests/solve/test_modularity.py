import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from snmf_dist.engine.loading import in_memory
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
    A = in_memory(sparse.csr_matrix(W))
    rows = A.rows_from(labels, dtype=np.int32), A.rows_from(weights, dtype=float)
    found, _ = modularities(A, *rows, K=K)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("rows", [3, 7, 20])
def test_blocks_change_nothing(rows):
    random = np.random.default_rng(0)
    W = sparse.random(20, 20, density=0.3, random_state=0)
    W = sparse.csr_matrix(W + W.T)
    labels = random.integers(-1, 3, (20, 2)).astype(np.int32)
    weights = np.stack([np.ones(20), np.asarray(W.sum(axis=1)).ravel()], axis=1)
    found = []
    for A in (in_memory(W), in_memory(W, [*range(0, 20, rows), 20])):
        given = A.rows_from(labels, dtype=np.int32), A.rows_from(weights, dtype=float)
        found.append(modularities(A, *given, K=3))
    np.testing.assert_allclose(*found, rtol=1e-12)
