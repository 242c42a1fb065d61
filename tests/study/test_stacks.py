"""Runs side by side share the passes over A, and each has the bits of the same run alone."""

from contextlib import nullcontext

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

import snmf_dist
from snmf_dist.locks import only_writer
from snmf_dist.study import work
from tests.helpers import planted_graph
from tests.study.test_many import Counts

pytestmark = pytest.mark.filterwarnings("ignore::snmf_dist.errors.ResultWarning")
GRID = {"ks": [2, 3, 5], "seeds": 2, "inits": "random"}


@pytest.mark.parametrize("solver", ["admm", "apg", "hals"])
@pytest.mark.parametrize("settings", [{"max_iter": 30}, {"stop": "paper", "tol": 1e-2, "rho": 0.5}])
def test_a_stacked_run_has_the_bits_of_the_same_run_alone(graph, tmp_path, solver, settings):
    settings = dict(settings)
    grid = {**GRID, "solvers": solver, "rhos": settings.pop("rho", "auto"), "block_rows": 25}
    assert_bits_of_single_runs(graph, snmf_dist.fit_many(graph, **grid, out=tmp_path / "s", **settings), runs=6)


def test_a_stacked_run_has_the_bits_of_the_same_run_alone_on_two_processes(graph, tmp_path, client):
    grid = {"ks": [2, 5], "seeds": 2, "inits": "random", "block_rows": 45, "max_iter": 12}
    assert_bits_of_single_runs(graph, snmf_dist.fit_many(graph, **grid, out=tmp_path / "s"), runs=4)


@pytest.mark.parametrize("init", ["kmeans", "spectral"])
@pytest.mark.parametrize("solver", ["admm", "apg", "hals"])
def test_a_stacked_run_from_a_shared_basis_has_the_bits_of_the_same_run_alone(graph, tmp_path, solver, init):
    grid = {"ks": [2, 3, 5], "seeds": 2, "inits": init, "solvers": solver, "block_rows": 25, "max_iter": 25}
    study = snmf_dist.fit_many(graph, **grid, out=tmp_path / "s")
    assert {row["param_basis_columns"] for row in study.rows} == {5}
    assert_bits_of_single_runs(graph, study, runs=6)


@pytest.mark.parametrize("init", ["kmeans", "spectral"])
def test_a_stack_on_a_shared_basis_has_the_bits_of_single_runs_on_two_processes(tmp_path, client, init):
    graph = snmf_dist.import_graph(planted_graph()[0], tmp_path / "g.zarr", dtype="float32", block_rows=45)
    grid = {"ks": [2, 5], "seeds": 2, "inits": init, "max_iter": 12}
    assert_bits_of_single_runs(graph, snmf_dist.fit_many(graph, **grid, out=tmp_path / "s"), runs=4)


@pytest.mark.filterwarnings("ignore::snmf_dist.errors.GraphWarning")  # of a row without edges
@pytest.mark.parametrize("init", ["kmeans", "spectral"])
def test_a_stack_on_a_graph_in_pieces_has_the_bits_of_single_runs(tmp_path, init):
    pieces = [planted_graph(60, 2, seed=i)[0] for i in range(3)] + [np.ones((2, 2)), np.zeros((1, 1))]
    store = snmf_dist.import_graph(sparse.block_diag(pieces), tmp_path / "g.zarr")
    assert store.components == 5
    study = snmf_dist.fit_many(store, ks=[2, 4, 6], seeds=2, inits=init, out=tmp_path / "s", max_iter=30)
    widths = {row["param_k"]: (row["param_basis_columns"], row["stack"]) for row in study.rows}
    assert widths == {
        2: (2, 2),
        4: (6, 4),
        6: (6, 4),
    }  # two clusters cannot be cut from the vectors of three parts
    assert_bits_of_single_runs(store, study)


def test_a_larger_grid_leaves_the_basis_of_earlier_runs(graph, tmp_path):
    first = snmf_dist.fit_many(graph, ks=[2, 3], out=tmp_path / "s", max_iter=20)
    found = snmf_dist.fit_many(graph, ks=[2, 3, 6], seeds=2, out=tmp_path / "s", max_iter=20)
    widths = {(row["param_k"], row["param_seed"]): row["param_basis_columns"] for row in found.rows}
    assert widths == {(2, 0): 3, (3, 0): 3, (6, 0): 6, (2, 1): 6, (3, 1): 6, (6, 1): 6}
    assert [row["run_id"] for row in found.rows[:2]] == [row["run_id"] for row in first.rows]
    assert [row["attempts"] for row in found.rows] == [1] * 6
    again = snmf_dist.fit_many(graph, ks=[2, 3, 6], seeds=2, out=tmp_path / "s", max_iter=20)
    assert [row["attempts"] for row in again.rows] == [1] * 6


def test_a_basis_narrower_than_k_is_refused(graph, tmp_path):
    with pytest.raises(snmf_dist.SnmfError, match="basis_columns is 4; expected at least k, which is 5"):
        snmf_dist.fit(graph, 5, basis_columns=4)
    with pytest.raises(snmf_dist.SnmfError, match="basis_columns is 91; expected 1 to 90"):
        snmf_dist.fit_many(graph, ks=[2], out=tmp_path / "s", basis_columns=91)


def assert_bits_of_single_runs(graph, study, *, runs=None):
    assert runs is None or [row["stack"] for row in study.rows] == [runs] * runs
    for row in study.rows:
        given = {name.removeprefix("param_"): value for name, value in row.items() if name.startswith("param_")}
        single, found = snmf_dist.fit(graph, **given), study.solution(row["run_id"])
        assert_array_equal(np.asarray(found.membership), np.asarray(single.membership))
        assert (found.status, found.n_iter, found.n_products) == (single.status, single.n_iter, single.n_products)
        assert_array_equal(found.bound, single.bound)
        if single.spectral_labels is not None:
            assert_array_equal(found.spectral_labels, single.spectral_labels)
        assert [r.captured for r in found.history if r.evaluated] == [
            r.captured for r in single.history if r.evaluated
        ]


def test_at_most_so_many_runs_are_side_by_side(graph, tmp_path):
    study = snmf_dist.fit_many(graph, **GRID, out=tmp_path / "s", max_at_once=4, max_iter=10)
    assert sorted(row["stack"] for row in study.rows) == [2, 2, 4, 4, 4, 4]


@pytest.mark.parametrize(("init", "taken"), [("random", False), ("kmeans", True)])
def test_an_interrupted_stack_goes_on_from_its_checkpoint(graph, tmp_path, init, taken):
    grid = {**GRID, "inits": init}

    class Stop(Counts):
        seen = 0

        def on_iteration(self, record, state):
            self.seen = record.iteration
            if record.iteration == 25:
                raise KeyboardInterrupt

    settings = {"max_iter": 60, "stop": "paper", "tol": 1e-12, "checkpoint_every": 10}
    with pytest.raises(KeyboardInterrupt):
        snmf_dist.fit_many(graph, **grid, out=tmp_path / "s", **settings, listeners=[Stop()])
    assert list((tmp_path / "s" / "runs").glob("stack-*.checkpoint"))
    assert snmf_dist.open_study(tmp_path / "s").counts["waiting"] == 6

    class First(Counts):
        first = None

        def on_iteration(self, record, state):
            self.first = self.first or record.iteration

    first = First()
    busy = snmf_dist.open_study(tmp_path / "s").rows[0]["path"]
    with only_writer(str(tmp_path / "s" / busy)) if taken else nullcontext():  # another process has a run of it
        found = snmf_dist.fit_many(graph, **grid, out=tmp_path / "s", **settings, listeners=[first])
    assert first.first > 10
    assert found.counts["done"] == 6 - taken
    found = snmf_dist.fit_many(graph, **grid, out=tmp_path / "s", **settings)
    assert not list((tmp_path / "s" / "runs").glob("stack-*"))
    expected = snmf_dist.fit_many(graph, **grid, out=tmp_path / "other", max_at_once=1, **settings)
    for row in expected.rows:
        pair = [np.asarray(study.solution(row["run_id"]).membership) for study in (found, expected)]
        assert_array_equal(*pair)
        assert row["captured"] == next(one for one in found.rows if one["run_id"] == row["run_id"])["captured"]


def test_a_stack_leaves_out_the_runs_that_another_process_has(graph, tmp_path):
    given = {**GRID, "out": tmp_path / "s", "max_iter": 10}
    busy = snmf_dist.fit_many(graph, **given, dry_run=True).rows[0]
    (tmp_path / "s" / "runs").mkdir(parents=True)
    with only_writer(str(tmp_path / "s" / busy["path"])):
        study = snmf_dist.fit_many(graph, **given)
    assert [(row["state"], row["stack"]) for row in study.rows] == [("waiting", None)] + 5 * [("done", 5)]
    study = snmf_dist.fit_many(graph, **given)
    assert [(row["state"], row["stack"]) for row in study.rows] == [("done", 1)] + 5 * [("done", 5)]
    assert_bits_of_single_runs(graph, study)


def test_runs_of_a_stack_that_fails_go_alone(graph, tmp_path, monkeypatch):
    def fails(*given):
        raise ArithmeticError("no luck")

    monkeypatch.setattr(work, "fit_stack", fails)
    study = snmf_dist.fit_many(graph, **GRID, out=tmp_path / "s", max_iter=10)
    assert study.counts["done"] == 6
    assert {row["stack"] for row in study.rows} == {1}


def test_runs_that_do_not_fit_fail_by_name_and_not_as_a_stack(graph, tmp_path):
    study = snmf_dist.fit_many(graph, ks=[2, 3], seeds=2, inits="random", out=tmp_path / "s", memory_limit="10MB")
    assert {row["state"] for row in study.rows} == {"failed"}
    assert all("may use 10 MB" in row["error"] for row in study.rows)
