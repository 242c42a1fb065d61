import json
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

import snmf_dist
from snmf_dist.cli import main
from tests.helpers import planted_graph


@pytest.fixture
def run():
    def invoke(*arguments):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return invoke


@pytest.fixture
def edges(tmp_path):
    """An edge list that counts from one and holds each edge once, and the planted labels."""
    W, y = planted_graph()
    upper = sparse.coo_matrix(sparse.triu(W))
    table = np.column_stack((upper.row + 1, upper.col + 1, upper.data))
    path = tmp_path / "edges.csv"
    np.savetxt(path, table, fmt=("%d", "%d", "%g"), delimiter=",", header="source,target,weight", comments="")
    (tmp_path / "labels.txt").write_text("\n".join(f"group {i}" for i in y))
    return path


@pytest.fixture
def store(run, edges, tmp_path):
    done = run("import", edges, tmp_path / "g.zarr", "--symmetrize", "max", "--first-id", 1, "--block-rows", 40)
    assert done.exit_code == 0, done.output
    return tmp_path / "g.zarr"


def test_import_prints_what_it_made(run, edges, tmp_path):
    done = run("import", edges, tmp_path / "g.zarr", "--symmetrize", "max", "--first-id", 1)
    assert done.exit_code == 0
    assert "rows                    90" in done.output
    assert "merge: 1 done" in done.output


def test_import_says_how_the_rows_are_ordered_unless_told_to_leave_them(run, edges, tmp_path):
    options = ("--symmetrize", "max", "--first-id", 1)
    done = run("import", edges, tmp_path / "g.zarr", *options)
    assert "made: order             as it came: small enough for any order" in done.output
    done = run("import", edges, tmp_path / "left.zarr", *options, "--no-reorder")
    assert done.exit_code == 0
    assert "made: order" not in done.output


def test_graph_builds_from_points_and_prints_the_audit(run, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((300, 3)))
    done = run("graph", tmp_path / "x.npy", tmp_path / "g.zarr", "--neighbors", 8, "--metric", "cosine")
    assert done.exit_code == 0, done.output
    for line in (
        "search: 1 done",
        "made: recall            1.0",
        "made: metric            cosine",
        "made: neighbors",
    ):
        assert line in done.output
    assert snmf_dist.open_graph(tmp_path / "g.zarr").n == 300


def test_fit_prints_the_table_and_scores_and_writes_the_result(run, store, tmp_path):
    files = ("--labels", tmp_path / "labels.txt", "--json-lines", tmp_path / "log.jsonl")
    paper = ("--init", "random", "--rho", 0.3, "--stop", "paper")
    done = run("fit", store, "-k", 3, *paper, "--out", tmp_path / "r.zarr", *files)
    assert done.exit_code == 0, done.output
    assert "iter  objective" in done.output
    assert "status                  CONVERGED" in done.output
    assert "accuracy                1.0000" in done.output
    solution = snmf_dist.open_solution(tmp_path / "r.zarr")
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["start", *["iteration"] * solution.n_iter, "end"]
    assert events[-1]["status"] == "CONVERGED"
    assert events[-2]["captured"] == solution.captured
    assert events[2]["captured"] is None  # iteration 2 is not evaluated


def test_a_run_that_does_not_converge_exits_with_1_and_still_writes(run, store, tmp_path):
    done = run("fit", store, "-k", 3, "--init", "random", "--max-iter", 4, "--out", tmp_path / "r.zarr")
    assert done.exit_code == 1
    assert "warning: MAX_ITER after 4 iterations" in done.stderr
    assert snmf_dist.open_solution(tmp_path / "r.zarr").n_iter == 4


def test_info_and_check_know_graphs_and_results(run, store, tmp_path):
    run("fit", store, "-k", 3, "--rho", 0.3, "--out", tmp_path / "r.zarr")
    for path, fact in [(store, "entries per row"), (tmp_path / "r.zarr", "KKT distance")]:
        shown = run("info", path)
        assert (shown.exit_code, fact in shown.output) == (0, True)
        checked = run("check", path)
        assert (checked.exit_code, "ok (every entry read)" in checked.output) == (0, True)
        assert "ok (quick)" in run("check", path, "--quick").output


def test_check_finds_a_torn_block(run, store):
    (store / "blocks/1/indices/c/0").unlink()
    done = run("check", store)
    assert done.exit_code == 2
    assert "error: " in done.stderr
    assert "block 1 (rows 40:80) is not what was written" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fit", "none.zarr", "-k", 3, "--out", "r.zarr"), "no such file or directory; check the path"),
        (("fit", "g.zarr", "-k", 0, "--out", "r.zarr"), "k is 0; expected at least 1"),
        (("fit", "g.zarr", "-k", 3, "--rho", -1, "--out", "r.zarr"), "rho is -1.0; expected"),
        (("fit", "g.zarr", "-k", 3, "--rho", "big", "--out", "r.zarr"), "'big' is neither a number nor auto"),
        (("fit", "g.zarr", "-k", 3, "--init", "magic", "--out", "r.zarr"), "init is 'magic'; expected one of"),
        (("fit", "g.zarr", "-k", 3), "Missing option '--out'"),
        (("fit", "g.zarr", "-k", 3, "--out", "r.zarr", "--labels", "none.txt"), "path of the labels"),
        (("fit", "g.zarr", "-k", 3, "--out", "g.zarr"), "holds a graph store"),
        (("fit", "g.zarr", "-k", 3, "--out", "g.zarr/r.zarr"), "lies inside the Zarr store"),
        (("fit", "g.zarr", "-k", 3, "--out", "no/r.zarr"), "no such directory; make it first"),
        (("fit", "g.zarr", "-k", 3, "--out", "foo://r.zarr"), "check the URL"),
        (("import", "edges.csv", "x.zarr", "--first-id", 1), "A is not symmetric"),
        (("import", "edges.csv", "g.zarr"), "already exists"),
        (("graph", "none.npy", "x.zarr"), "no such file or directory"),
        (("graph", "edges.csv", "x.zarr"), "not a Zarr array"),
        (("fit", "edges.csv", "-k", 3, "--out", "r.zarr"), "snmf_dist.import_graph (snmf-dist import)"),
        (("info", "edges.csv"), "not a Zarr group"),
        (("check", "none.zarr"), "no such file or directory"),
        (("demo", "--points", 10), "too few"),
    ],
)
def test_bad_input_exits_with_2_and_a_sentence(run, store, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert "Traceback" not in done.output
    assert not (tmp_path / "r.zarr").exists()


def test_an_unreachable_scheduler_exits_with_2(run, store, tmp_path, monkeypatch):
    monkeypatch.setattr("snmf_dist.engine.client.TIMEOUT", 1)
    done = run("fit", store, "-k", 3, "--out", tmp_path / "r.zarr", "--scheduler", "tcp://127.0.0.1:9")
    assert done.exit_code == 2
    assert "no Dask scheduler answers there" in done.stderr


def test_a_full_disk_exits_with_3_and_a_sentence(run, store, tmp_path, monkeypatch):
    def no_space(*args):
        raise OSError(28, "No space left on device", str(tmp_path / "r.zarr"))

    monkeypatch.setattr("snmf_dist.result.files.BlockWriter.__call__", no_space)
    done = run("fit", store, "-k", 3, "--rho", 0.3, "--out", tmp_path / "r.zarr")
    assert done.exit_code == 3
    assert "could not be written (no room is left on the disk" in done.stderr


def test_the_demo_finds_its_clusters_and_draws_them(run, tmp_path):
    for _ in range(2):  # a second run replaces the first
        done = run("demo", "--out", tmp_path / "demo", "--points", 600)
        assert done.exit_code == 0, done.output
    assert (tmp_path / "demo/clusters.png").read_bytes()[:4] == b"\x89PNG"
    solution = snmf_dist.open_solution(tmp_path / "demo/demo-result.zarr")
    assert len(solution.labels) == 600
    assert "k-means on the same points: accuracy 0." in done.output


def test_brackets_in_a_path_are_printed(run, store, tmp_path):
    out = tmp_path / "r[bold].zarr"
    assert f"result: {out}" in run("fit", store, "-k", 3, "--out", out).output
    assert f"{out}: ok" in run("check", out).output


def test_the_demo_without_matplotlib_clusters_and_says_what_is_missing(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run("demo", "--out", tmp_path / "demo", "--points", 600)
    assert done.exit_code == 0
    assert "accuracy" in done.output
    assert "install snmf-dist[report]" in done.output
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == ["demo-graph.zarr", "demo-result.zarr"]


@pytest.fixture
def points(tmp_path):
    """The file of two clouds far apart."""
    random = np.random.default_rng(0)
    X = random.standard_normal((200, 3)) + 1 + 9 * np.eye(3)[random.integers(0, 2, 200)]
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "x.npy"


def test_fit_takes_points_and_builds_their_graph_beside_them(run, points, tmp_path):
    options = ("-k", 2, "--out", tmp_path / "r.zarr")
    settings = ("--graph-setting", "metric=cosine", "--graph-setting", "neighbors=9")
    done = run("fit", points, *options, *settings)
    assert done.exit_code == 0, done.output
    assert "search: 1 done" in done.output
    assert f"result: {tmp_path / 'r.zarr'}" in done.output
    made = snmf_dist.open_graph(f"{points}.graph.zarr").info()
    assert (made["made: metric"], made["made: neighbors"]) == ("cosine", 9)
    again = run("fit", points, *options, *settings, "--overwrite")
    assert again.exit_code == 0, again.output
    assert "search" not in again.output  # reused


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("metrc=cosine",), "has no setting 'metrc'; did you mean 'metric'?"),
        (("metric",), "expected NAME=VALUE, as metric=cosine"),
        (("neighbors=many",), "neighbors is 'many'; expected a whole number"),
    ],
)
def test_a_bad_setting_of_the_graph_of_points_is_named(run, points, tmp_path, settings, words):
    given = [part for text in settings for part in ("--graph-setting", text)]
    done = run("fit", points, "-k", 2, "--out", tmp_path / "r.zarr", *given)
    assert done.exit_code == 2
    assert words in done.stderr


def test_an_existing_result_is_refused_before_a_graph_is_built(run, store, points, tmp_path):
    done = run("fit", points, "-k", 2, "--out", store)
    assert done.exit_code == 2
    assert not (tmp_path / "x.npy.graph.zarr").exists()


def test_settings_of_a_graph_are_refused_where_there_are_no_points(run, store, tmp_path):
    done = run("fit", store, "-k", 3, "--out", tmp_path / "r.zarr", "--graph-setting", "metric=cosine")
    assert done.exit_code == 2
    assert "holds a graph, not points" in done.stderr


def test_help_teaches(run):
    text = run("--help").output
    assert "snmf-dist fit graph.zarr -k 20 --out result.zarr" in text
    assert "1 not converged" in text
    for command in ("graph", "import", "fit", "info", "check", "demo"):
        assert run(command, "--help").exit_code == 0
