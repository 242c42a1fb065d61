"""The scripts of examples/paper run at toy size: on data made here, in the shape of the paper's."""

import importlib
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import snmf_dist
from tests import oracle

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "paper"
MODULES = [path.stem for path in FOLDER.glob("*.py")]


@pytest.fixture
def paper(monkeypatch, tmp_path):
    """A way to import the scripts, with data sets of four well-parted classes."""
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 20)
    X = np.abs(10 * np.eye(4)[y] @ random.uniform(0.5, 1, (4, 12)) + random.normal(size=(80, 12)))
    monkeypatch.setenv("SNMF_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "coil20_128x128.npz", X=X, y=y)
    plane = np.eye(3)[y[:60], :2] + 0.05 * random.normal(size=(60, 2))
    all_six = {f"{name}{i}": value for i in range(1, 7) for name, value in (("X", plane), ("y", y[:60]))}
    np.savez(tmp_path / "data" / "zelnik_perona.npz", **all_six)
    words = sparse.csr_matrix(X)
    parts = {"data": words.data, "indices": words.indices, "indptr": words.indptr, "shape": words.shape}
    np.savez(tmp_path / "data" / "reuters21578_top20.npz", format=b"csr", y=y, **parts)
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def problem(paper, tmp_path):
    sets = paper("sets")
    points = sets.read_points("COIL-20")
    return sets.make_problem(points, 4, tmp_path), points.y


def test_every_method_finds_four_clusters_or_says_why_not(paper, problem):
    methods = paper("methods")
    for name in methods.METHODS:
        try:
            found = methods.run(name, problem[0], 0)
        except methods.Absent:
            assert name == "Leiden"  # the one that an extra package is needed for
            continue
        assert found.labels.shape == (80,)
        assert found.seconds > 0
        assert (found.objective is not None) == (name in methods.SNMF)
    default = methods.run("default", problem[0], 0)
    assert snmf_dist.score(default.labels, problem[1]).accuracy == 1


def test_admm_of_the_table_is_the_papers_algorithm(paper, problem):
    methods, (given, _) = paper("methods"), problem
    L = methods.shared_start(given.A, 4, 3)
    expected, *_ = oracle.admm(given.A.toarray(), L, rho=0.1, tol=1e-5, max_iter=1000)
    found = methods.run("ADMM", given, 3)
    assert found.objective == pytest.approx(oracle.objective(given.A.toarray(), expected.L), rel=1e-3)
    np.testing.assert_array_equal(found.labels, expected.L.argmax(axis=1))


def test_symnmf_descends_to_a_stationary_point(paper, problem):
    symnmf, figures, (given, _) = paper("symnmf").symnmf, paper("figures"), problem
    values = []
    L = paper("methods").shared_start(given.A, 4, 0)
    found = symnmf(given.A, L, tol=1e-6, watch=lambda H, _: values.append(oracle.objective(given.A.toarray(), H)))
    assert found.ended == "converged"
    assert (np.diff(values) <= 1e-9).all()
    assert figures.kkt(given.A, found.H) < 1e-4
    assert figures.kkt(given.A, L) == pytest.approx(oracle.kkt(given.A.toarray(), L))
    assert symnmf(given.A, L, seconds=0).ended == "out of time"


def test_table_1_goes_on_where_it_was(paper, tmp_path, capsys):
    table1, out = paper("table1"), tmp_path / "table1"
    wanted = [str(out), "--sets", "1", "--methods", "ADMM", "Spec", "--starts"]
    table1.main([*wanted, "1"])
    with (out / "rows.jsonl").open("a") as file:
        file.write('{"set": "synthetic 1", "k"')  # as a kill leaves it
    page = table1.main([*wanted, "2"])
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    assert [(row["start"], row["method"]) for row in rows] == [(s, m) for s in (0, 1) for m in ("ADMM", "Spec")]
    assert "of 2 (paper 89)" in page
    assert {path.name for path in out.iterdir()} == {"rows.jsonl", "rows.csv", "table1.md", "table1.png"}
    assert page in capsys.readouterr().out


@pytest.mark.parametrize("table", ["table2", "table3"])
def test_tables_2_and_3_have_the_papers_figures_beside_ours(paper, tmp_path, monkeypatch, table):
    monkeypatch.setattr(paper("real"), "KS", (2, 4))
    wanted = ["--subsets", "1", "--starts", "1", "--ks", "2", "4"]
    names = ["--methods", "ADMM", "APG", "SymNMF", "default", "Leiden"] + ["dask-ml"] * (table == "table3")
    page = paper(table).main([str(tmp_path / "out"), *wanted, *names])
    assert {"table2": "(96.66)", "table3": "(91.46)"}[table] in page
    assert "Times faster ADMM is than" in page
    assert ("takes dense points only" in page) == (table == "table3")
    assert (tmp_path / "out" / f"{table}.png").stat().st_size > 10_000
    assert (tmp_path / "out" / "rows.csv").read_text().count("\n") == 1 + 2 * len(names[1:])


def test_the_summary_has_errors_tests_and_the_papers_figures(paper, tmp_path):
    summary, runs = paper("summary"), paper("runs")
    random = np.random.default_rng(0)
    for table, set in summary.SETS.items():
        ledger = runs.Ledger(tmp_path / table)
        for method in ("ADMM", "SymNMF", "default"):
            for subset, start in np.ndindex(summary.SUBSETS, summary.STARTS):
                late = method == "SymNMF" and set == "Reuters" and subset > 14
                figures = {"AC": random.uniform(60, 70) + 20 * (method == "default"), "NMI": 50.0, "cpu": 2.0}
                figures |= {"note": "out of time", "AC": None} if late else {"note": ""}
                ledger.add((set, 8, subset, start, method), {**figures, "products": 100})
        ledger.add((set, 20, 0, 0, "SymNMF"), {**figures, "AC": 50.0, "note": "", "products": 100})  # one start
    folders = [f"--{table}={tmp_path / table}" for table in summary.SETS]
    out, picture = tmp_path / "summary.json", tmp_path / "by-k.png"
    tables = summary.main([*folders, f"--json={out}", f"--picture={picture}"])["tables"]
    rows = {
        name: next(row for row in table["rows"] if row["k"] == "k=8")
        for name, table in tables.items()
        if "table" in name
    }
    assert rows["table2-AC"]["ADMM"].keys() == {"found", "error", "paper"}
    assert rows["table2-AC"]["default"].keys() == {"found", "error"}
    assert rows["table3-AC"]["SymNMF"] == "15 of 20 ended"
    assert rows["table3-cpu"]["SymNMF"]["above"]
    assert rows["table2-faster"]["SymNMF"]["found"] == 1
    assert "error" not in next(row for row in tables["table3-AC"]["rows"] if row["k"] == "k=20")["SymNMF"]
    differences = {(row["set"], row["reference"], row["method"]): row for row in tables["differences"]["rows"]}
    assert differences["Reuters", "ADMM", "SymNMF"]["subsets"] == 15
    assert differences["COIL-20", "ADMM", "default"]["chance"] < 1e-3
    assert differences["COIL-20", "ADMM", "default"]["apart"]["found"] < -15
    assert json.loads(out.read_text())["tables"].keys() == tables.keys()
    assert picture.stat().st_size > 10_000


def test_what_ends_a_run_of_the_paper_is_tried_one_thing_at_a_time(paper, tmp_path, monkeypatch):
    stopping = paper("stopping")
    case = paper("runs").Case("COIL-20", 4)
    monkeypatch.setattr(stopping, "PROBLEMS", ((case, 2),))
    monkeypatch.setattr(stopping, "ITERATIONS", 300)
    all_variants = {name: one._replace(iterations=300) for name, one in stopping.VARIANTS.items()}
    for some in (list(all_variants)[:2], list(all_variants)):  # the second time the rest is done
        monkeypatch.setattr(stopping, "VARIANTS", {name: all_variants[name] for name in some})
        out = tmp_path / "lines.json"
        lines = stopping.main([str(tmp_path / "rows"), "--json", str(out)])["tables"]["endings"]["rows"]
        assert [line["variant"] for line in lines] == some
    assert len((tmp_path / "rows" / "stopping.jsonl").read_text().splitlines()) == 2 * len(all_variants)
    assert json.loads(out.read_text())["benchmark"] == "paper-stopping"


def test_the_runs_that_are_to_end_are_the_papers_algorithm(paper):
    stopping = paper("stopping")
    points = paper("sets").read_points("COIL-20")
    A = stopping.similarity(points, stopping.Variant())
    assert np.allclose(A.toarray(), oracle.similarity_graph(points.X)[1], atol=1e-5)
    L, Y = stopping.begin(A, 4, 0, "scaled")
    met, labels, _ = stopping.algorithm_2(A, L, Y, rho=0.1, iterations=500)
    state, iterations, _ = oracle.admm(A.toarray(), L, rho=0.1, tol=stopping.EPSILON, max_iter=500)
    assert met["sum"] == iterations
    assert met["sum of squares"] <= met["L alone"] <= met["largest"] <= met["sum"]
    assert (labels["end"] == state.L.argmax(axis=1)).all()


def test_every_figure_is_drawn(paper, tmp_path, monkeypatch, capsys):
    figures = paper("figures")
    monkeypatch.setattr(figures.draw_convergence, "__kwdefaults__", {"products": 20, "seconds": 5})
    monkeypatch.setattr(figures.snmf_dist, "fit", _quiet(snmf_dist.fit))
    figures.main([str(tmp_path / "figures"), "--table2", str(tmp_path), "--table3", str(tmp_path)])
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert names == {"synthetic.png", "coil20-blocks.png", "coil20-convergence.png"}
    assert "run table2.py" in capsys.readouterr().out


def _quiet(fit):
    def quiet(*given, **settings):
        with warnings.catch_warnings(action="ignore"):
            return fit(*given, **settings)

    return quiet


def test_data_that_is_not_there_is_named(paper, tmp_path, monkeypatch):
    monkeypatch.setenv("SNMF_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match="set SNMF_DATA to the folder that has zelnik"):
        paper("sets").read_points("synthetic 1")


def test_the_time_of_an_iteration_is_printed_against_n(paper, capsys):
    exponent = paper("cost").main(["--sizes", "500", "1000", "2000", "-k", "4"])
    assert np.isfinite(exponent)
    assert f"n^{exponent:.2f}" in capsys.readouterr().out
