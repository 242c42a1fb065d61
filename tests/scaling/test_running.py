"""Scaling studies: what is run, what is measured, and that a study goes on where it was."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import snmf_dist
from snmf_dist.cli import main
from snmf_dist.errors import InputError, WorkLost
from snmf_dist.scaling import making, view
from snmf_dist.scaling.grid import make_grid

SMALL = {"rows": [400, 800], "ks": [3], "workers": [0], "degrees": [12], "repeats": 1}
PHASES = ["read", "start", "sweep", "halo", "KxK", "engine", "evaluation", "save"]


@pytest.fixture(autouse=True)
def no_page(request, monkeypatch):
    """Drawing takes longer than these runs; `test_page` looks at the page."""
    if "draws" not in request.node.name:
        monkeypatch.setattr(view, "draw_page", lambda study: (b"page", b"picture"))


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_every_run_has_its_phases_and_they_are_all_of_its_time(tmp_path):
    study = snmf_dist.scaling_study(tmp_path / "s", **SMALL)
    assert [row["state"] for row in study.rows] == ["done", "done"]
    assert all(row["nmi"] > 0.3 and row["peak_bytes"] > 0 for row in study.rows)
    table = pq.read_table(tmp_path / "s" / "phases.parquet").to_pylist()
    assert [row["phase"] for row in table if not row["modelled"]] == 2 * PHASES
    parts = [row for row in table if row["modelled"]]
    assert [row["phase"] for row in parts] == 2 * ["sweep: product", "sweep: solve", "sweep: sums"]
    whole = sum(row["seconds"] for row in table if row["phase"] == "sweep")
    assert sum(row["seconds"] for row in parts) == pytest.approx(whole)
    for run in study.measured:
        seconds = {row["phase"]: row["seconds"] for row in run["phases"]}
        assert 0.95 * run["wall"] <= sum(seconds.values()) <= 1.05 * run["wall"]
        assert all(value >= 0 for value in seconds.values())
        assert seconds["halo"] == 0
        products = {row["phase"]: row["products"] for row in run["phases"]}
        assert products["sweep"] == 2 * run["iterations"]
        assert products["start"] > 0
        assert run["peak_bytes"] > 0
        assert run["planned_bytes"] > 0
    assert pq.read_table(tmp_path / "s" / "runs.parquet").num_rows == 2
    spec = json.loads((tmp_path / "s" / "study.json").read_text())
    assert spec["settings"] == {"study": "scaling", "mixing": 0.2, "seed": 0}
    settings = {"rows": 400, "degree": 12.0, "k": 3, "workers": 0, "repeat": 0, "seed": 0}
    assert spec["runs"][0]["settings"] == settings
    assert snmf_dist.open_study(tmp_path / "s").counts["done"] == 2


def test_a_study_draws_its_page_and_leaves_no_graphs_and_results(tmp_path):
    pytest.importorskip("matplotlib", reason="the page needs matplotlib; install snmf-dist[report]")
    study = snmf_dist.scaling_study(tmp_path / "s", **{**SMALL, "rows": [400]})
    assert [path.name for path in (tmp_path / "s" / "graphs").iterdir()] == ["first.zarr"]
    assert list((tmp_path / "s" / "runs").iterdir()) == []
    assert all(run["graph_bytes"] > 0 and run["result_bytes"] > 0 for run in study.measured)
    assert "Scaling study" in (tmp_path / "s" / "scaling.html").read_text()
    assert (tmp_path / "s" / "scaling.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "s" / "model.json").read_text())["places"]["process"]["points"] == 1


def test_a_graph_is_the_same_made_in_a_process_of_its_own(tmp_path, monkeypatch):
    found = []
    for large in (making.LARGE, 0):
        monkeypatch.setattr(making, "LARGE", large)
        path = tmp_path / f"{large:g}.zarr"
        given = {"rows": 300, "k": 3, "seed": 1, "memory_limit": None}
        model = {"degree": 12, "mixing": 0.2, "shuffle": False}
        making.make_apart(path=str(path), truth=str(tmp_path / f"{large:g}.npy"), model=model, **given)
        found.append(snmf_dist.open_graph(path).read_rows(0, 300).toarray())
    np.testing.assert_array_equal(*found)
    with pytest.raises(WorkLost, match="could not be made"):
        making.make_apart(path=str(path), truth=str(tmp_path / "t.npy"), model={**model, "mixing": 5}, **given)


def test_on_workers_halo_rows_and_tasks_are_counted(client, tmp_path):
    study = snmf_dist.scaling_study(tmp_path / "s", **{**SMALL, "rows": [800], "workers": None})
    (found,) = study.measured
    assert found["workers"] == 2
    assert found["blocks"] == 2
    assert 0 < found["halo_rows"] <= 400
    assert 0 < found["tasks"] <= 10 * 2 + 10 + 10  # and those of the evaluations
    phases = {row["phase"]: row for row in found["phases"]}
    sent = 2 * 2 * found["iterations"] * found["halo_rows"] * 3 * 4  # sweeps, blocks, columns, bytes
    assert phases["halo"]["bytes_sent"] == pytest.approx(sent, rel=0.2)
    assert phases["sweep"]["cpu_workers"] > 0
    assert phases["sweep"]["products"] == 2 * found["iterations"]


def test_a_study_goes_on_where_it_was(tmp_path):
    class Stopped(KeyboardInterrupt):
        pass

    def stop(study):
        raise Stopped

    with pytest.raises(Stopped):
        snmf_dist.scaling_study(tmp_path / "s", progress=stop, **SMALL)
    assert snmf_dist.open_study(tmp_path / "s").counts == {"waiting": 1, "running": 0, "done": 1, "failed": 0}
    first = (tmp_path / "s" / "events.jsonl").read_text()
    (tmp_path / "s" / "events.jsonl").write_text(first + '{"event": "started", "torn')
    calls = []
    study = snmf_dist.scaling_study(tmp_path / "s", progress=calls.append, **SMALL)
    assert study.counts["done"] == 2
    assert len(calls) == 1
    more = snmf_dist.scaling_study(tmp_path / "s", **{**SMALL, "repeats": 2, "rows": [400]})
    assert (len(more.rows), more.counts["done"]) == (3, 3)


def test_small_sizes_go_first_and_repeats_count_as_doublings():
    order = [(point.rows, point.repeat) for point in make_grid([400, 800, 1600], [12], [3], [0], 2)]
    assert order == [(400, 0), (400, 1), (800, 0), (800, 1), (1600, 0), (1600, 1)]
    places = [(point.workers, point.rows) for point in make_grid([400, 800], [12, 24], [3], [0, 1], 1)]
    assert places == [(0, 400), (1, 400), (0, 400), (0, 800), (1, 400), (1, 800), (0, 800), (1, 800)]


def test_no_run_begins_that_cannot_end_in_time(tmp_path):
    study = snmf_dist.scaling_study(tmp_path / "s", hours=1e-6, **SMALL)
    assert study.counts["waiting"] >= 1
    assert snmf_dist.scaling_study(tmp_path / "s", **SMALL).counts["done"] == 2


def test_a_run_that_fails_is_kept_and_the_others_go_on(run, tmp_path):
    arguments = ("scale", "--rows", "400", "-k", 3, "--workers", 0, "--degree", 12, "--repeats", 1)
    failed = run(*arguments, "--out", tmp_path / "s", "--memory-limit", "1MB")
    assert failed.exit_code == 3, failed.output
    study = snmf_dist.open_study(tmp_path / "s")
    assert "1 failed" in failed.output
    assert "Traceback" in study.error(study.rows[0]["run_id"])
    again = run(*arguments, "--out", tmp_path / "s")
    assert again.exit_code == 0, again.output
    assert "1 of 1 done" in again.output


def test_the_command_takes_ranges_and_names_what_it_cannot_take(run, tmp_path):
    done = run(
        *("scale", "--rows", "400:900", "-k", "3", "--workers", "0", "--degree", "12", "--repeats", "1"),
        *("--out", tmp_path / "s"),
    )
    assert done.exit_code == 0, done.output
    assert sorted(row["param_rows"] for row in snmf_dist.open_study(tmp_path / "s").rows) == [400, 800]
    out = ("--out", tmp_path / "t")
    for wrong, text in {
        ("--rows", "900:400"): "smaller number first",
        ("--rows", "many"): "--rows",
        ("--rows", "400", "-k", "3,x"): "-k",
        ("--rows", "400", "-k", "100"): "too few",
        ("--rows", "400", "--degree", "500"): "500 edges",
        ("--rows", "400", "--workers", "-1"): "workers",
        ("--rows", "400", "--repeats", "0"): "repeats",
        ("--rows", "400", "--hours", "-1"): "hours",
        ("--rows", "400", "--workers", "1", "--scheduler", "tcp://127.0.0.1:1"): "one of them",
    }.items():
        refused = run("scale", *wrong, *out)
        assert refused.exit_code == 2, (wrong, refused.output)
        assert text in refused.output, (wrong, refused.output)
        assert not (tmp_path / "t").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path, graph):
    snmf_dist.fit_many(graph, ks=3, out=tmp_path / "many")
    with pytest.raises(InputError, match="other runs"):
        snmf_dist.scaling_study(tmp_path / "many", **SMALL)
    snmf_dist.scaling_study(tmp_path / "s", **{**SMALL, "rows": [400]})
    assert len(snmf_dist.ScalingStudy.open(tmp_path / "s").measured) == 1
    with pytest.raises(InputError, match="open_study"):
        snmf_dist.ScalingStudy.open(tmp_path / "many")
    with pytest.raises(InputError, match="seed=0"):
        snmf_dist.scaling_study(tmp_path / "s", seed=1, **SMALL)
    with pytest.raises(InputError, match="begun with"):
        snmf_dist.fit_many(graph, ks=3, out=tmp_path / "s")
