import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.sparse.linalg import eigsh

import snmf_dist
from snmf_dist.engine.halo import Block, padded
from snmf_dist.engine.loading import in_memory
from snmf_dist.solve import coarse
from snmf_dist.solve.basis import leading_basis
from snmf_dist.solve.kernels import fused, plain
from tests.helpers import planted_graph

FLOAT = np.dtype(float)


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch):
    monkeypatch.setattr(coarse, "GROUPS", 60)
    monkeypatch.setattr(coarse, "GROUP_ROWS", 10)


def shuffled(W, seed=5):
    rows = np.random.default_rng(seed).permutation(W.shape[0])
    return sparse.csr_matrix(W[rows][:, rows])


def normal(W):
    """D^−½ W D^−½ as a matrix and as a Graph, and the rows (r, degree)."""
    degree = np.asarray(W.sum(axis=1)).ravel()
    scale = sparse.diags_array(1 / np.sqrt(degree))
    matrix = sparse.csr_matrix(scale @ W @ scale)
    A = in_memory(matrix)
    return matrix, A, A.rows_from(np.stack([np.sqrt(degree), degree], axis=1), dtype=np.float64)


def both_bases(W, K):
    """The basis of a graph begun with the coarse one, and at random."""
    _, A, weights = normal(W)
    given = [leading_basis(A, K, seed=0, dtype=FLOAT, weights=rows, limit=1.0) for rows in (weights, None)]
    assert_allclose(given[0].values, given[1].values, atol=1e-5)
    return given


@pytest.mark.parametrize("module", [plain, fused], ids=["plain", "fused"])
@settings(deadline=None, max_examples=30)
@given(st.integers(1, 90), st.integers(0, 30), st.integers(1, 20), st.integers(0, 1000))
def test_the_weights_between_groups_are_their_sums(module, own, halo, size, seed):
    random = np.random.default_rng(seed)
    S = sparse.random(own, own + halo, 0.1, "csr", random_state=random)
    A = Block(S.indptr.astype(np.int64), padded(S.indices), S.data)
    first, groups = 3, own // size + 5
    r = random.uniform(0.5, 2, own + halo)
    g = np.concatenate([first + np.arange(own) // size, random.integers(0, groups, halo)])
    B = np.stack([r, g], axis=1)
    ((at, found),) = module.group_weights(A, B[:own].copy(), B[own:].copy(), B[:own].copy(), groups=groups, out=[])
    expected = np.zeros((groups, groups))
    np.add.at(expected, (g[:own, None], g[None]), r[:own, None] * S.toarray() * r)
    assert at == first
    assert_allclose(found, expected[first : first + len(found)], atol=1e-12)
    assert not expected[first + len(found) :].any()


def test_a_graph_in_order_takes_less_than_half_of_the_products():
    W, _ = planted_graph(1500, 8, inside=0.1, between=0.003, seed=2)
    near, far = both_bases(W, 8)
    assert near.converged
    assert 2 * near.products < far.products + 8


def test_an_order_that_says_nothing_costs_one_pass():
    W, _ = planted_graph(1500, 8, inside=0.1, between=0.003, seed=2)
    near, far = both_bases(shuffled(W), 8)
    assert near.products <= far.products + 1


def test_clusters_that_the_order_hides_are_found_beside_those_it_shows():
    n, random = 900, np.random.default_rng(1)
    shown, _ = planted_graph(n, 6, inside=0.12, between=0.004, seed=0)
    hidden, _ = planted_graph(n, 2, inside=0.1, between=0.0004, seed=1)
    i, j = random.integers(0, 2 * n, (2, 300))
    bridges = sparse.coo_matrix((np.ones(300), (i, j)), shape=(2 * n, 2 * n))
    W = sparse.block_diag([shown, shuffled(hidden)]) + bridges + bridges.T
    places = np.concatenate([np.arange(n), random.uniform(0, n, n)])  # the hidden rows between those in order
    rows = np.argsort(places)
    matrix, A, weights = normal(sparse.csr_matrix(W)[rows][:, rows])
    found = leading_basis(A, 4, seed=0, dtype=FLOAT, weights=weights, limit=1.0)
    values = eigsh(matrix, 4, v0=np.ones(2 * n), return_eigenvectors=False)
    assert_allclose(found.values, np.sort(values)[::-1], atol=1e-4)


def test_small_graphs_begin_at_random():
    assert coarse.groups_of(599, 30) == 0
    assert coarse.groups_of(600, 30) == 60
    assert coarse.groups_of(2000, 100) == 200
    assert coarse.groups_of(2000, 101) == 0


def test_the_coarse_start_is_the_same_everywhere(tmp_path, place):
    W, y = planted_graph(1000, 5, inside=0.1, between=0.005, seed=4)
    graph = snmf_dist.import_graph(W, tmp_path / "g.zarr", block_rows=300, reorder=False)
    solution = snmf_dist.fit(graph, 5)
    assert snmf_dist.score(solution.labels, y).accuracy == 1.0
    assert solution.provenance["basis_products"] % 8 == 2  # the pass for the coarse graph among them
