import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import snmf_dist
from snmf_dist import Listener, Status
from snmf_dist.engine.loading import in_memory
from snmf_dist.solve.admm import ADMM, ADMMState
from snmf_dist.solve.kernels import uniform_rows
from snmf_dist.solve.loop import run
from snmf_dist.solve.problem import Problem
from tests import oracle
from tests.helpers import PAPER, planted_graph

pytestmark = pytest.mark.filterwarnings("ignore::snmf_dist.errors.NotConverged")
K, RHO, STEPS = 3, 0.1, 25


def dense(graph):
    return graph.read_rows(0, graph.n).toarray()


def start(graph, k=K, seed=0):
    """The documented random start: uniform on [0, 2 sqrt(mean(A) / k))."""
    A = dense(graph)
    scale = 2 * np.sqrt(A.mean() / k)
    return uniform_rows(0, graph.n, K=k, seed=seed, scale=scale, type=np.dtype(float))


def assert_same_state(state, expected, tolerance=1e-10):
    for name in expected._fields:
        found = np.asarray(getattr(state, name))
        assert_allclose(found, getattr(expected, name), rtol=0, atol=tolerance, err_msg=name)


def test_admm_in_memory_is_the_papers_algorithm(graph):
    A = sparse.csr_matrix(dense(graph))
    solver, here = ADMM((RHO,)), in_memory(A)
    (outcome,) = run(
        solver,
        Problem(here, 1.0, K),
        solver.init(here, here.rows_from(start(graph), dtype=float)),
        stop="paper",
        tol=1e-300,
        max_iter=STEPS,
    )
    expected, _, change = oracle.admm(A.toarray(), start(graph), rho=RHO, max_iter=STEPS)
    assert_same_state(ADMMState(*(rows.array for rows in outcome.state)), expected)
    assert outcome.history[-1].change == pytest.approx(change, rel=1e-8)


@pytest.mark.parametrize("block_rows", [None, 90, 40, 11])
def test_admm_on_dask_is_the_papers_algorithm(graph, place, block_rows):
    solution = snmf_dist.fit(graph, K, **PAPER, max_iter=STEPS, tol=1e-13, block_rows=block_rows)
    expected, _, _ = oracle.admm(dense(graph), start(graph), rho=RHO, max_iter=STEPS)
    assert_same_state(solution.state, expected)
    assert_array_equal(solution.labels, expected.L.argmax(axis=1))


def test_a_run_stops_at_the_same_iteration_as_the_paper(graph, place):
    solution = snmf_dist.fit(graph, K, **PAPER | {"rho": 0.3}, tol=1e-4)
    expected, iterations, change = oracle.admm(dense(graph), start(graph), rho=0.3, tol=1e-4, max_iter=1000)
    assert (solution.status, solution.n_iter) == (Status.CONVERGED, iterations)
    assert solution.history[-1].change == pytest.approx(change, rel=1e-6)
    assert_same_state(solution.state, expected)


def test_equal_blocks_give_the_same_bits_on_any_number_of_workers(graph, two_processes):
    def trace():
        solution = snmf_dist.fit(graph, K, max_iter=15, block_rows=25)
        numbers = [(r.change, r.primal, r.dual) for r in solution.history]
        return solution.membership.compute(), numbers, solution.captured

    with Client(two_processes):
        runs = [trace()]
    for threads in (1, 2, 5):
        with dask.config.set(num_workers=threads):
            runs.append(trace())
    for L, numbers, captured in runs[1:]:
        assert_array_equal(L, runs[0][0])
        assert (numbers, captured) == runs[0][1:]


def test_membership_is_nonnegative_and_its_objective_is_that_of_the_formula(graph, place):
    solution = snmf_dist.fit(graph, K, max_iter=10)
    A, L = dense(graph), np.asarray(solution.membership)
    assert (L >= 0).all()
    assert solution.objective == pytest.approx(oracle.objective(A, L), rel=1e-10)
    assert solution.captured == pytest.approx((A**2).sum() - solution.objective, rel=1e-10)
    assert solution.kkt == pytest.approx(oracle.kkt(A, L), rel=1e-8)


def test_planted_groups_are_found(tmp_path):
    W, y = planted_graph(150, 3, seed=1)
    graph = snmf_dist.import_graph(W, tmp_path / "g.zarr", block_rows=40)
    solution = snmf_dist.fit(graph, 3)
    assert solution.status.converged
    assert snmf_dist.score(solution.labels, y).accuracy == 1.0


def test_float32_state_gives_the_labels_of_float64(tmp_path):
    W, _ = planted_graph(150, 3, seed=2)
    fits = []
    for dtype in ("float32", "float64"):
        graph = snmf_dist.import_graph(W, tmp_path / f"{dtype}.zarr", dtype=dtype)
        fits.append(snmf_dist.fit(graph, 3))
        assert fits[-1].membership.dtype == dtype
    assert_array_equal(fits[0].labels, fits[1].labels)
    assert fits[0].captured == pytest.approx(fits[1].captured, rel=1e-5)


def test_one_cluster_is_the_leading_eigenvector(graph):
    solution = snmf_dist.fit(graph, 1, stop="paper", tol=1e-9)
    values, vectors = np.linalg.eigh(dense(graph))
    leading = np.abs(vectors[:, -1]) * np.sqrt(values[-1])
    assert_allclose(np.asarray(solution.membership).ravel(), leading, atol=1e-6)


def test_as_many_clusters_as_rows_can_be_asked_for(tmp_path):
    W, _ = planted_graph(12, 2, inside=0.9)
    graph = snmf_dist.import_graph(W, tmp_path / "g.zarr")
    with warnings.catch_warnings(action="ignore"):
        solution = snmf_dist.fit(graph, 12, max_iter=30)
    assert solution.membership.shape == (12, 12)
    assert np.isfinite(solution.captured)


def test_a_listener_sees_the_state_as_row_blocked_dask_arrays(graph, place):
    class Watch(Listener):
        def __init__(self):
            self.seen = []

        def on_iteration(self, record, state):
            assert all(type(x) is da.Array for x in state)
            chunks = {x.chunks for x in state}
            self.seen.append((record.iteration, state._fields, chunks))

    watch = Watch()
    solution = snmf_dist.fit(graph, K, **PAPER, max_iter=3, listeners=[watch], block_rows=25)
    blocks = ((25, 25, 25, 15), (K,))
    assert watch.seen == [(i, ("X", "Y", "L", "Lam", "Gam"), {blocks}) for i in (1, 2, 3)]
    assert {x.chunks for x in solution.state} == {blocks}


def test_products_with_A_are_counted(graph):
    solution = snmf_dist.fit(graph, K, **PAPER, max_iter=20, evaluate_every=10)
    # two a step, one for each evaluation: iterations 1, 10 and 20
    assert solution.n_products == 2 * 20 + 3
    assert [r.iteration for r in solution.history if r.evaluated] == [1, 10, 20]


def test_divergence_keeps_the_last_finite_state(tmp_path):
    # entries of 1e30 square to more than float32 holds
    W = sparse.csr_matrix(np.full((6, 6), 1e30))
    graph = snmf_dist.import_graph(W, tmp_path / "g.zarr", normalize=None)
    with warnings.catch_warnings(action="ignore"):
        solution = snmf_dist.fit(graph, 2, **PAPER)
    assert solution.status is Status.DIVERGED
    assert np.isfinite(np.asarray(solution.membership)).all()
