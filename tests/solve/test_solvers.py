"""What all solvers share: the frame, restarts, warm starts, stopping."""

import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import snmf_dist
from snmf_dist import Listener, Status
from snmf_dist.solve.admm import ADAPT_RANGE, ADMM
from snmf_dist.solve.apg import INNER_STEPS
from snmf_dist.solve.kernels import uniform_rows
from snmf_dist.solve.stopping import MOVED, StepNumbers
from tests import oracle
from tests.helpers import PAPER, planted_graph

pytestmark = pytest.mark.filterwarnings("ignore::snmf_dist.errors.NotConverged")
SOLVERS = ["admm", "apg", "hals"]


def dense(graph):
    return graph.read_rows(0, graph.n).toarray()


def start(graph, k=3, seed=0):
    return uniform_rows(
        0, graph.n, K=k, seed=seed, scale=2 * np.sqrt(dense(graph).mean() / k), type=np.dtype(float)
    )


def test_apg_is_the_papers_algorithm(graph, place):
    solution = snmf_dist.fit(graph, 3, solver="apg", init="random", rho=1.0, stop="paper", tol=1e-9, max_iter=4)
    L, Z = oracle.apg(dense(graph), start(graph), rho=1.0, tol=1e-9, max_iter=4, look_every=INNER_STEPS)
    assert_allclose(np.asarray(solution.state.L), L, atol=1e-10)
    assert_allclose(np.asarray(solution.state.Z), Z, atol=1e-10)


def test_looking_at_the_inner_norm_every_tenth_time_changes_apg_by_less_than_its_tolerance(graph):
    literal, rare = (
        oracle.apg(dense(graph), start(graph), rho=1.0, tol=1e-7, max_iter=6, look_every=every)[0]
        for every in (1, INNER_STEPS)
    )
    assert np.linalg.norm(literal - rare) <= 1e-4 * np.linalg.norm(rare)


class Penalised(Listener):
    """Takes the objective of HALS after each iteration."""

    def __init__(self, A, rho):
        self.A, self.rho, self.values = A, rho, []

    def on_iteration(self, record, state):
        self.values.append(oracle.penalised(self.A, np.asarray(state.L), np.asarray(state.Z), rho=self.rho))


@pytest.mark.parametrize("seed", [0, 1])
def test_hals_never_raises_its_objective(graph, seed):
    watch = Penalised(dense(graph), 0.3)
    snmf_dist.fit(
        graph, 3, solver="hals", init="random", rho=0.3, seed=seed, stop="paper", max_iter=60, listeners=[watch]
    )
    assert len(watch.values) > 10
    assert (np.diff(watch.values) <= 1e-12 * watch.values[0]).all()
    assert watch.values[-1] < 0.99 * watch.values[0]


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_finds_planted_groups_on_threads_and_processes(tmp_path, place, solver):
    W, y = planted_graph(120, 3, seed=1)
    graph = snmf_dist.import_graph(W, tmp_path / "g.zarr", block_rows=50)
    solution = snmf_dist.fit(graph, 3, solver=solver)
    assert solution.status.converged
    assert snmf_dist.score(solution.labels, y).accuracy == 1.0
    assert_array_equal(np.unique(solution.spectral_labels), [0, 1, 2])


@pytest.mark.parametrize("solver", SOLVERS)
def test_restarts_side_by_side_are_the_runs_one_by_one(graph, solver):
    settings = {"solver": solver, "init": "random", "tol": 1e-4, "stop": "paper", "rho": 0.3, "max_iter": 150}
    together = snmf_dist.fit(graph, 3, **settings, n_init=4, seed=5)
    alone = [snmf_dist.fit(graph, 3, **settings, seed=5 + r) for r in range(4)]
    assert len({one.n_iter for one in alone}) > 1  # some leave earlier than others
    for run, one in zip(together.runs, alone, strict=True):
        assert (run["status"], run["iterations"]) == (one.status.name, one.n_iter)
        assert run["captured"] == pytest.approx(one.captured, rel=1e-12)
    best = max(alone, key=lambda one: one.captured)
    assert_allclose(np.asarray(together.membership), np.asarray(best.membership), atol=1e-12)
    assert together.n_products == sum(one.n_products for one in alone)


def test_restarts_on_two_processes_are_those_in_one(graph, two_processes):
    settings = {"init": "kmeans", "n_init": 2, "max_iter": 4}
    here = snmf_dist.fit(graph, 3, **settings)
    with Client(two_processes):
        there = snmf_dist.fit(graph, 3, **settings)
        assert_allclose(np.asarray(there.membership), np.asarray(here.membership), atol=1e-10)
    assert [run["iterations"] for run in there.runs] == [run["iterations"] for run in here.runs]


@pytest.mark.parametrize("init", ["kmeans", "spectral"])
def test_restarts_from_the_eigenvectors_keep_the_best(graph, init):
    one = snmf_dist.fit(graph, 4, init=init)
    three = snmf_dist.fit(graph, 4, init=init, n_init=3)
    assert len(three.runs) == 3
    assert three.runs[0]["captured"] == pytest.approx(one.captured, rel=1e-9)
    if init == "spectral":
        assert three.captured == max(run["captured"] for run in three.runs)
    else:
        assert three.history[-1].modularity >= one.history[-1].modularity - 1e-12


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("rho", ["auto", 0.3])
def test_a_saved_result_is_gone_on_from_exactly(graph, tmp_path, solver, rho):
    settings = {"solver": solver, "rho": rho, "init": "random", "stop": "paper", "tol": 1e-12}
    snmf_dist.fit(graph, 3, **settings, max_iter=13, out=tmp_path / "half.zarr", save_state=True)
    half = snmf_dist.open_solution(tmp_path / "half.zarr")
    half.validate()
    on = snmf_dist.fit(graph, 3, **settings | {"init": tmp_path / "half.zarr"}, max_iter=17)
    whole = snmf_dist.fit(graph, 3, **settings, max_iter=30)
    assert_array_equal(np.asarray(on.membership), np.asarray(whole.membership))
    assert on.n_iter == whole.n_iter
    assert on.history[-1].rho == whole.history[-1].rho
    assert on.history[-1].captured == whole.history[-1].captured


def test_a_result_without_its_state_is_begun_from_at_its_membership(graph, tmp_path):
    first = snmf_dist.fit(graph, 3, **PAPER, max_iter=20, out=tmp_path / "r.zarr")
    assert snmf_dist.open_solution(tmp_path / "r.zarr").state is None
    again = snmf_dist.fit(graph, 3, init=tmp_path / "r.zarr", rho=0.1, stop="paper", max_iter=1)
    given = snmf_dist.fit(graph, 3, init=np.asarray(first.membership), rho=0.1, stop="paper", max_iter=1)
    expected, _, _ = oracle.admm(dense(graph), np.asarray(first.membership), rho=0.1, max_iter=1)
    assert_allclose(np.asarray(again.membership), expected.L, atol=1e-10)
    assert_array_equal(np.asarray(again.membership), np.asarray(given.membership))


def test_a_penalty_asked_for_is_used_when_a_run_is_gone_on_from(graph):
    first = snmf_dist.fit(graph, 3, **PAPER, max_iter=12)
    on = snmf_dist.fit(graph, 3, init=first, rho=5.0, stop="paper", max_iter=3)
    assert [(record.iteration, record.rho) for record in on.history] == [(13, 5.0), (14, 5.0), (15, 5.0)]


def test_a_solution_saved_from_a_cluster_can_be_gone_on_from_without_it(graph, tmp_path, two_processes):
    with Client(two_processes):
        settings = {"init": "random", "stop": "paper", "max_iter": 3}
        kept, lean = (
            snmf_dist.fit(graph, 3, **settings, out=tmp_path / f"{state}.zarr", save_state=state)
            for state in (True, False)
        )
    assert lean.state is None
    on = snmf_dist.fit(graph, 3, init=kept, stop="paper", max_iter=3)
    assert_allclose(
        np.asarray(on.membership), np.asarray(snmf_dist.fit(graph, 3, **settings | {"max_iter": 6}).membership)
    )


def test_a_start_given_in_the_inputs_order_is_brought_into_the_stores(tmp_path):
    X = np.random.default_rng(0).standard_normal((300, 2)) + 9 * np.arange(300)[:, None] % 27
    graph = snmf_dist.build_graph(X, tmp_path / "g.zarr", exact=True)
    L = np.abs(np.random.default_rng(1).standard_normal((300, 3))).astype(np.float32)
    solution = snmf_dist.fit(graph, 3, init=L, rho=0.1, stop="paper", max_iter=1)
    order = graph.order
    expected, _, _ = oracle.admm(dense(graph).astype(float), L[order].astype(float), rho=0.1, max_iter=1)
    assert_allclose(np.asarray(solution.membership)[order], expected.L, atol=1e-5)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("init", ["kmeans", "spectral", "random"])
def test_the_scale_of_A_changes_nothing_but_the_scale_of_L(tmp_path, solver, init):
    W, _ = planted_graph(90, 3, seed=3)
    found = []
    for scale in (1.0, 64.0):  # a power of 4: the square root is exact
        graph = snmf_dist.import_graph(
            W * scale, tmp_path / f"{scale}.zarr", normalize=None, dtype="float64", block_rows=40
        )
        found.append(snmf_dist.fit(graph, 3, solver=solver, init=init, stop="paper", tol=1e-12, max_iter=25))
    one, other = found
    assert_allclose(np.asarray(other.membership), 8 * np.asarray(one.membership), atol=1e-4)
    assert other.history[-1].rho == pytest.approx(64 * one.history[-1].rho, rel=1e-6)


@pytest.mark.filterwarnings("ignore::snmf_dist.errors.ResultWarning")
def test_an_adapting_penalty_converges_where_the_papers_cycles(tmp_path):
    """Overlapping clusters: many edges between the groups."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((8, 16)) * 0.6
    X = centres[random.integers(0, 8, 900)] + random.standard_normal((900, 16))
    graph = snmf_dist.build_graph(X, tmp_path / "g.zarr")
    settings = {"init": "random", "stop": "kkt", "max_iter": 500}
    assert snmf_dist.fit(graph, 8, **settings, rho=0.1).status is Status.CYCLING
    assert snmf_dist.fit(graph, 8, **settings).status is Status.STATIONARY


@pytest.mark.filterwarnings("ignore::snmf_dist.errors.ResultWarning")
def test_a_run_at_rest_away_from_an_optimum_is_not_called_converged(tmp_path):
    bipartite = np.kron([[0, 1], [1, 0]], np.ones((20, 20)))
    graph = snmf_dist.import_graph(bipartite, tmp_path / "g.zarr", dtype="float64")
    poor = snmf_dist.fit(graph, 2, solver="hals", init="random", rho=0.3)
    assert (poor.status, poor.status.converged) == (Status.STUCK, False)
    assert snmf_dist.fit(graph, 2, solver="hals", init="random").captured > 0.99
    # there are no clusters whose sharpness could fall
    assert snmf_dist.fit(graph, 2).status is not Status.PEAKED


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("init", ["kmeans", "spectral", "random"])
@pytest.mark.parametrize("normalize", ["ncut", None])
def test_rows_without_edges_are_in_no_cluster(tmp_path, solver, init, normalize):
    W, _ = planted_graph(40, 2)
    with pytest.warns(snmf_dist.errors.GraphWarning, match="10 of 50 rows"):
        graph = snmf_dist.import_graph(
            sparse.block_diag([W, sparse.csr_matrix((10, 10))]).tocsr(), tmp_path / "g.zarr", normalize=normalize
        )
    with pytest.warns(snmf_dist.errors.ResultWarning, match="10 of 50 rows have no edges"):
        solution = snmf_dist.fit(graph, 2, solver=solver, init=init)
    assert (solution.labels[40:] == -1).all()
    assert (solution.labels[:40] >= 0).all()
    if init == "kmeans":
        assert (solution.spectral_labels[40:] == -1).all()


def test_the_eigengap_points_to_the_number_of_groups(tmp_path):
    graph = snmf_dist.import_graph(planted_graph(150, 3, seed=1)[0], tmp_path / "g.zarr")
    gaps = snmf_dist.fit(graph, 3).eigengap
    assert len(gaps) == 3
    assert gaps.argmax() + 1 == 3


def test_more_equal_parts_than_clusters_are_warned_of(tmp_path):
    cliques = sparse.csr_matrix(sparse.block_diag([np.ones((6, 6))] * 5))
    graph = snmf_dist.import_graph(cliques, tmp_path / "g.zarr", dtype="float64")
    with pytest.warns(snmf_dist.errors.ResultWarning, match="falls into 5 parts of 2 rows or more, but k is 3"):
        snmf_dist.fit(graph, 3)


def test_a_run_that_stalls_gets_twice_the_penalty_and_keeps_it():
    calm = StepNumbers(change=1.0, primal=1e-9, dual=1.0, size=1.0, dual_size=1.0)  # asks for less penalty
    solver = ADMM((0.2, 0.2), adapt=True, first_rho=0.2).adapted(4, [calm] * 2, [True, False])
    assert solver.rho == (0.4, 0.2)
    solver = solver.adapted(10, [calm] * 2, [False, False])
    assert solver.rho == pytest.approx((0.4, 0.2 / 1.5))
    for iteration in range(11, 60):
        solver = solver.adapted(iteration, [calm] * 2, [True, False])
    assert solver.rho[0] == pytest.approx(0.2 * ADAPT_RANGE)
    assert solver.keep([0]).adapted(60, [calm], [False]).rho == pytest.approx((0.2 * ADAPT_RANGE,))


def test_Y_goes_past_itself_only_while_an_adapting_penalty_has_not_risen():
    assert ADMM((0.1, 0.2)).omega.tolist() == [1, 1]  # the paper's algorithm
    assert ADMM((0.1, 0.2, 0.3, 0.2 * 1.5 / 1.5), adapt=True, first_rho=0.2).omega.tolist() == [1.6, 1.6, 1, 1.6]


def test_each_way_to_stop_says_its_name(graph):
    settled = snmf_dist.fit(graph, 3, init="random")
    assert settled.status is Status.SETTLED
    assert settled.history[-1].moved <= MOVED
    still = snmf_dist.fit(graph, 3, init="random", stop="kkt", tol=1e-6)
    assert still.status is Status.STATIONARY
    assert still.kkt <= 1e-6
    assert oracle.kkt(dense(graph), np.asarray(still.membership)) == pytest.approx(still.kkt, rel=1e-3)
    paper = snmf_dist.fit(graph, 3, **PAPER | {"rho": 0.3})
    assert paper.status is Status.CONVERGED
    assert paper.history[-1].change <= 1e-5


def specks(tmp_path):
    """Three large groups, and specks that hang together so well that the objective wants columns for them."""
    W, _ = planted_graph(240, 3, seed=0, inside=0.3, between=0.03)
    tight = sparse.block_diag([np.ones((4, 4))] * 3)
    links = sparse.random(240, 12, density=0.004, random_state=1, data_rvs=lambda n: np.full(n, 0.1))
    return snmf_dist.import_graph(
        sparse.block_array([[W, links], [links.T, tight]]).tocsr(), tmp_path / "g.zarr", dtype="float64"
    )


def test_a_run_that_went_back_is_gone_on_from_at_its_best_labels(tmp_path):
    graph = specks(tmp_path)
    peaked = snmf_dist.fit(graph, 5, evaluate_every=2, out=tmp_path / "r.zarr", save_state=True)
    assert peaked.status is Status.PEAKED
    settings = {"stop": "kkt", "tol": 1e-12, "max_iter": 20, "rho": 0.3}
    on = snmf_dist.fit(graph, 5, init=tmp_path / "r.zarr", **settings)
    from_there = snmf_dist.fit(graph, 5, init=np.asarray(peaked.membership), **settings)
    assert on.history[0].iteration == peaked.n_iter + 1
    assert_allclose(np.asarray(on.membership), np.asarray(from_there.membership), atol=1e-9)


@pytest.mark.filterwarnings("ignore:these clusters are hardly better")
def test_a_run_goes_back_to_where_its_labels_were_best(tmp_path):
    graph = specks(tmp_path)
    random = np.random.default_rng(3)
    found = [snmf_dist.fit(graph, k, evaluate_every=2, seed=int(random.integers(99))) for k in (3, 4, 5)]
    best = [one for one in found if one.status is Status.PEAKED]
    assert best
    for one in best:
        A = dense(graph)
        root = np.sqrt(graph.degree + graph.tau)
        expected = oracle.modularity(A * np.outer(root, root), one.labels)
        assert one.history[-1].modularity == pytest.approx(expected, rel=1e-9)
        assert one.captured == pytest.approx((A**2).sum() - oracle.objective(A, np.asarray(one.membership)))
