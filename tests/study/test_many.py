"""Many runs in one folder: what is run, what is kept, and what a second call finds."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

import snmf_dist
from snmf_dist import errors
from snmf_dist.engine import client as cluster
from snmf_dist.locks import only_writer
from snmf_dist.study.folder import StudyFolder
from snmf_dist.study.queue import coarse_to_fine, in_order
from snmf_dist.study.spec import Run, run_id
from snmf_dist.study.table import make_rows, parquet
from tests.helpers import planted_graph
from tests.test_cluster import scheduler, worker

TIMES = {"seconds", "cpu_seconds", "peak_bytes", "attempts", "stack"}


def table(study):
    """The table without what differs from one time to the next."""
    return [{name: value for name, value in row.items() if name not in TIMES} for row in study.rows]


class Counts(snmf_dist.Listener):
    """Counts the runs that begin; ends the process's study in run number `fails_in` if that is given."""

    sees_state = False

    def __init__(self, fails_in=None, error=None):
        self.begun, self.fails_in, self.error = 0, fails_in, error or RuntimeError("no luck")

    def on_start(self, settings):
        self.begun += 1
        if self.begun == self.fails_in:
            raise self.error


def test_the_grid_is_run_and_each_run_is_the_lone_fit(graph, tmp_path):
    _, y = planted_graph()
    study = snmf_dist.fit_many(
        graph, ks=[2, 3], seeds=2, inits=["kmeans", "random"], out=tmp_path / "s", labels=y, tol=1e-4
    )
    assert study.counts == {"waiting": 0, "running": 0, "done": 8, "failed": 0}
    assert study.exit_code in (0, 1)
    frame = study.to_pandas()
    assert set(frame["param_k"]) == {2, 3}
    assert (frame["attempts"] == 1).all()
    for row in study.rows:
        settings = {name.removeprefix("param_"): v for name, v in row.items() if name.startswith("param_")}
        lone = snmf_dist.fit(graph, **settings)
        found = study.solution(row["run_id"])
        assert_array_equal(np.asarray(found.membership), np.asarray(lone.membership))
        assert row["captured"] == lone.captured
        assert row["n_products"] == lone.n_products
        assert row["ac"] == snmf_dist.score(lone.labels, y).accuracy
    best = study.best(by="ac", k=3)
    assert snmf_dist.score(best.labels, y).accuracy == max(row["ac"] for row in study.rows)
    written = pq.read_table(tmp_path / "s" / "runs.parquet").to_pylist()
    assert [row["run_id"] for row in written] == [row["run_id"] for row in study.rows]
    assert [row["captured"] for row in written] == [row["captured"] for row in study.rows]
    results = study.cv_results_
    assert len(results["params"]) == 8
    assert results["rank_test_score"].min() == 1
    assert_array_equal(results["mean_test_score"], frame["captured"])


def test_the_same_call_does_nothing_and_a_larger_grid_adds_runs(graph, tmp_path):
    first = table(snmf_dist.fit_many(graph, ks=[2], seeds=2, out=tmp_path / "s", max_at_once=1))
    counts = Counts()
    again = snmf_dist.fit_many(graph, ks=[2], seeds=2, out=tmp_path / "s", max_at_once=1, listeners=[counts])
    assert counts.begun == 0
    assert table(again) == first
    more = snmf_dist.fit_many(graph, ks=[2, 3], seeds=2, out=tmp_path / "s", max_at_once=1, listeners=[counts])
    assert counts.begun == 2
    assert table(more)[:2] == first
    assert len(more.rows) == 4
    fewer = snmf_dist.fit_many(graph, ks=[3], out=tmp_path / "s", max_at_once=1, listeners=[counts])
    assert counts.begun == 2
    assert table(fewer) == table(more)


def test_labels_that_come_later_or_change_give_scores_to_runs_that_are_done(graph, tmp_path):
    _, y = planted_graph()
    given = {"ks": [2, 3], "out": tmp_path / "s"}
    assert [row["ac"] for row in snmf_dist.fit_many(graph, **given).rows] == [None, None]
    for labels in (y, y % 2, None):
        study = snmf_dist.fit_many(graph, **given, labels=labels)
        kept = y % 2 if labels is None else labels
        for row in study.rows:
            assert row["ac"] == snmf_dist.score(study.solution(row["run_id"]).labels, kept).accuracy
            assert row["attempts"] == 1
    events = len(study.folder.events())
    snmf_dist.fit_many(graph, **given, labels=y % 2)
    assert len(study.folder.events()) == events


def test_runs_may_be_listed_and_graphs_named(graph, tmp_path):
    runs = [{"k": 4, "rho": 0.5}, {"k": 2}]
    study = snmf_dist.fit_many({"blue": graph}, runs=runs, out=tmp_path / "s")
    assert [(row["graph"], row["param_k"], row["param_rho"]) for row in study.rows] == [
        ("blue", 4, 0.5),
        ("blue", 2, "auto"),
    ]
    assert pq.read_table(tmp_path / "s" / "runs.parquet")["param_rho"].to_pylist() == ["0.5", "auto"]


def test_a_run_that_fails_leaves_its_traceback_and_goes_again(graph, tmp_path):
    study = snmf_dist.fit_many(graph, ks=[2, 3], out=tmp_path / "s", max_at_once=1, listeners=[Counts(fails_in=1)])
    assert study.counts["failed"] == 1
    assert study.counts["done"] == 1
    assert study.exit_code == 3
    assert "no luck" in study.summary()
    failed = next(row for row in study.rows if row["state"] == "failed")
    assert "Traceback" in study.error(failed["run_id"])
    again = snmf_dist.fit_many(graph, ks=[2, 3], out=tmp_path / "s", max_at_once=1)
    assert again.counts["done"] == 2
    assert [row["attempts"] for row in again.rows if row["run_id"] == failed["run_id"]] == [2]
    assert again.error(failed["run_id"]) is None


def test_an_error_ends_the_study_if_that_is_asked_for(graph, tmp_path):
    with pytest.raises(RuntimeError, match="no luck"):
        snmf_dist.fit_many(
            graph, ks=[2, 3, 4], out=tmp_path / "s", max_at_once=1, on_error="stop", listeners=[Counts(fails_in=2)]
        )
    assert snmf_dist.open_study(tmp_path / "s").counts == {"waiting": 1, "running": 0, "done": 1, "failed": 1}


def test_an_interrupted_study_has_a_valid_table(graph, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        snmf_dist.fit_many(
            graph,
            ks=[2, 3, 4],
            out=tmp_path / "s",
            max_at_once=1,
            listeners=[Counts(2, error=KeyboardInterrupt())],
        )
    written = pq.read_table(tmp_path / "s" / "runs.parquet")["state"].to_pylist()
    assert sorted(written) == ["done", "waiting", "waiting"]
    assert snmf_dist.fit_many(graph, ks=[2, 3, 4], out=tmp_path / "s", max_at_once=1).counts["done"] == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ks": []}, "ks is empty"),
        ({"ks": [2], "seeds": []}, "seeds is empty"),
        ({"ks": [2, 91]}, r"the run k=91, .* expected 1 to 90"),
        ({"ks": [2], "inits": ["best"]}, "init is 'best'"),
        ({"ks": [2], "k": 3}, "give ks instead"),
        ({"ks": [2], "max_itr": 3}, "did you mean 'max_iter'"),
        ({"ks": [2], "labels": [1, 2]}, r"labels of graph have shape \(2,\); expected \(90,\)"),
        ({"ks": [2], "priority": "init"}, "priority is 'init'"),
        ({"ks": [2], "priority": 3}, "priority is 3"),
        ({"ks": [2], "inits": [np.ones((90, 2))]}, "init is a ndarray; a study takes it by name"),
        ({"ks": [2], "on_error": "panic"}, "on_error is 'panic'"),
        ({"ks": [2], "join": True}, "no study to join"),
        ({"runs": [{"seed": 3}]}, "has no k"),
        ({"runs": [{"k": 3, "graph": "red"}]}, "expected one of graph"),
        ({"runs": [{"k": 3, "save_state": True}]}, "a run has no setting 'save_state'"),
        ({"runs": None}, "runs is None"),
        ({"graphs": [3]}, "graphs has a int"),
        ({}, "nothing to run"),
    ],
)
def test_bad_input_is_refused_before_any_work(graph, tmp_path, given, message):
    with pytest.raises(errors.InputError, match=message):
        snmf_dist.fit_many(**{"graphs": graph, "out": tmp_path / "s", **given})
    assert not (tmp_path / "s").exists()


def test_what_many_runs_warn_of_is_said_once(graph, tmp_path):
    grid = {"ks": [2, 3], "seeds": 2, "inits": ["kmeans", "random"], "tol": 1e-15}
    with pytest.warns(errors.ResultWarning, match="tol is 1e-15, finer than the rounding") as caught:
        snmf_dist.fit_many(graph, **grid, out=tmp_path / "s", dry_run=True)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_an_output_that_is_something_else_is_refused(graph, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    for name in ("file", "folder"):
        with pytest.raises(errors.StoreExists, match=r"choose another|a new path"):
            snmf_dist.fit_many(graph, ks=[2], out=tmp_path / name)
    with pytest.raises(errors.StoreNotFound):
        snmf_dist.fit_many(graph, ks=[2], out=tmp_path / "no" / "where")
    with pytest.raises(errors.StoreNotFound, match=r"study\.json"):
        snmf_dist.open_study(tmp_path / "folder")


def test_a_changed_graph_or_setting_is_refused_by_name(graph, tmp_path):
    snmf_dist.fit_many({"g": graph}, ks=[2], out=tmp_path / "s", max_iter=50)
    with pytest.raises(errors.InputError, match="begun with max_iter=50, now it is 60"):
        snmf_dist.fit_many({"g": graph}, ks=[2], out=tmp_path / "s", max_iter=60)
    with pytest.raises(errors.InputError, match="begun with max_iter=50, now it is 1000"):
        snmf_dist.fit_many({"g": graph}, ks=[2], out=tmp_path / "s")
    said = {"max_iter": 50, "specks": "drop"}  # a default that is said is no change
    assert snmf_dist.fit_many({"g": graph}, ks=[2], out=tmp_path / "s", **said).counts["done"] == 1
    other = snmf_dist.import_graph(planted_graph(seed=5)[0], tmp_path / "other.zarr")
    with pytest.raises(errors.InputError, match=r"the graph g .* is not the one of before"):
        snmf_dist.fit_many({"g": other}, ks=[2], out=tmp_path / "s", max_iter=50)


def test_a_second_process_is_refused_or_joins(graph, tmp_path):
    out = tmp_path / "s"
    snmf_dist.fit_many(graph, ks=[2, 3], out=out, max_at_once=1, listeners=[Counts(fails_in=1)])
    left = next(row for row in snmf_dist.open_study(out).rows if row["state"] == "failed")
    with only_writer(str(out)):
        with pytest.raises(errors.OutputBusy, match="join=True"):
            snmf_dist.fit_many(graph, ks=[2, 3], out=out, max_at_once=1)
        with pytest.raises(errors.InputError, match="not in the study to join"):
            snmf_dist.fit_many(graph, ks=[2, 3, 4], out=out, max_at_once=1, join=True)
        with only_writer(str(out / left["path"])):  # the other process has this run
            assert snmf_dist.fit_many(graph, ks=[2, 3], out=out, max_at_once=1, join=True).counts["done"] == 1
        assert snmf_dist.fit_many(graph, ks=[2, 3], out=out, max_at_once=1, join=True).counts["done"] == 2


def damaged(data):
    """Ways to damage a file."""
    yield b""
    yield data[: len(data) // 2]
    yield data[:-3]
    yield bytes([data[0] ^ 1]) + data[1:]
    middle = len(data) // 2
    yield data[:middle] + bytes([data[middle] ^ 16]) + data[middle + 1 :]
    yield b"\xff" * len(data)
    yield data + data[-20:]


@pytest.mark.filterwarnings("ignore::snmf_dist.errors.ResultWarning")
def test_damage_to_the_files_of_a_study_is_detected_or_harmless(graph, tmp_path):
    given = {"ks": [2, 3], "seeds": 2, "out": tmp_path / "s", "max_iter": 30}
    expected = snmf_dist.fit_many(graph, **given)
    one = tmp_path / "s" / expected.rows[0]["path"]
    places = [tmp_path / "s" / name for name in ("study.json", "events.jsonl", "runs.parquet")]
    places += sorted(path for path in one.rglob("*") if path.is_file())
    detected = all_damage(lambda: snmf_dist.fit_many(graph, **given), places, lambda data: [*damaged(data), None])
    assert detected["study.json"] >= 5
    chunks = [number for name, number in detected.items() if "membership/c/" in name]  # read when they are used
    assert chunks
    assert all(chunks)


@pytest.mark.study
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore::snmf_dist.errors.ResultWarning")
def test_all_damage_to_every_file_of_a_study_is_detected_or_harmless(graph, tmp_path):
    given = {"ks": [2, 3], "out": tmp_path / "s", "max_iter": 30, "save_state": True}
    snmf_dist.fit_many(graph, **given, max_at_once=1, listeners=[Counts(fails_in=1)])
    (tmp_path / "s" / "errors" / "left.txt").write_text("of a run that went again")
    snmf_dist.fit_many(graph, **given)
    files = sorted(path for path in (tmp_path / "s").rglob("*") if path.is_file())
    whole, random = {path: path.read_bytes() for path in files}, np.random.default_rng(16)

    def ways(data):
        yield from damaged(data)
        yield None
        for place in random.integers(0, len(data), 5):
            yield data[:place] + bytes([data[place] ^ 1 << random.integers(0, 8)]) + data[place + 1 :]
        yield data[: random.integers(0, len(data))]
        yield bytes(len(data))
        yield whole[files[random.integers(0, len(files))]]  # another file of the study

    detected = all_damage(lambda: snmf_dist.fit_many(graph, **given), files, ways)
    print({name: number for name, number in detected.items() if number})


def all_damage(command, places, ways):
    """Damage files of a study in many ways: the command then raises, or gives the same results as before.

    Returns how often damage to each of the files was detected.
    """
    study = command()
    folder, whole = Path(study.path), Path(study.path).with_name("whole")
    expected = table(study), [_results(study, row) for row in study.rows]
    shutil.copytree(folder, whole)
    detected = {}
    for place in places:
        name = str(place.relative_to(folder))
        detected[name] = 0
        for content in ways(place.read_bytes()):
            place.unlink() if content is None else place.write_bytes(content)
            try:
                found = command()
                assert table(found) == expected[0], (name, content)
                for row, results in zip(found.rows, expected[1], strict=True):
                    for one, other in zip(_results(found, row), results, strict=True):
                        assert_array_equal(one, other)
            except (errors.StoreCorrupt, errors.NotOurStore, errors.StoreVersionError):
                assert name == "study.json" or name.startswith("runs/")
                detected[name] += 1
            shutil.rmtree(folder)
            shutil.copytree(whole, folder)
    return detected


def _results(study, row):
    """All that a result holds."""
    solution = study.solution(row["run_id"])
    labels = (solution.labels, solution.spectral_labels)
    return np.asarray(solution.membership), *labels, solution.captured, [r.captured for r in solution.history]


@pytest.mark.parametrize("at_once", [1, None])
def test_a_damaged_checkpoint_of_a_study_costs_no_more_than_the_run(graph, tmp_path, at_once):
    given = {"ks": [2, 3], "out": tmp_path / "s", "max_at_once": at_once, "checkpoint_every": 5, "max_iter": 40}
    given |= {"stop": "paper", "tol": 1e-12}

    class Stop(Counts):
        def on_iteration(self, record, state):
            if record.iteration == 25:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        snmf_dist.fit_many(graph, **given, listeners=[Stop()])
    shutil.copytree(tmp_path / "s", tmp_path / "stopped")
    expected = snmf_dist.fit_many(graph, **given | {"out": tmp_path / "other"})
    files = [path for path in (tmp_path / "s").rglob("*") if path.is_file() and ".checkpoint" in str(path)]
    assert files
    for ways in ([b"\xff" * 60] * len(files), [b""] * len(files), [None] * len(files)):
        for path, content in zip(files, ways, strict=True):
            path.unlink() if content is None else path.write_bytes(content)
        found = snmf_dist.fit_many(graph, **given)
        assert table(found) == table(expected)
        assert_same_results(found, expected)
        shutil.rmtree(tmp_path / "s")
        shutil.copytree(tmp_path / "stopped", tmp_path / "s")


def test_a_study_of_a_newer_format_is_refused(graph, tmp_path):
    snmf_dist.fit_many(graph, ks=[2], out=tmp_path / "s")
    place = tmp_path / "s" / "study.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"version": 99}))
    with pytest.raises(errors.StoreVersionError, match="version 99"):
        snmf_dist.fit_many(graph, ks=[2], out=tmp_path / "s")


def test_a_disk_that_fills_ends_the_study_and_what_was_done_stays(graph, tmp_path, monkeypatch):
    writes, real = iter(range(9)), snmf_dist.Solution.write

    def write(self, *args, **kwargs):
        if next(writes) == 1:
            raise OSError(28, "No space left on device")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(snmf_dist.Solution, "write", write)
    with pytest.raises(errors.ResultNotSaved, match="no room"):
        snmf_dist.fit_many(graph, ks=[2, 3, 4], out=tmp_path / "s", max_at_once=1)
    assert snmf_dist.open_study(tmp_path / "s").counts == {"waiting": 1, "running": 0, "done": 1, "failed": 1}
    assert snmf_dist.fit_many(graph, ks=[2, 3, 4], out=tmp_path / "s", max_at_once=1).counts["done"] == 3


def test_a_disk_that_fills_while_a_stack_is_written_leaves_what_was_written(graph, tmp_path, monkeypatch):
    writes, real = iter(range(9)), snmf_dist.Solution.write

    def write(self, *args, **kwargs):
        if next(writes) == 1:
            raise OSError(28, "No space left on device")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(snmf_dist.Solution, "write", write)
    with pytest.raises(errors.ResultNotSaved, match="no room"):
        snmf_dist.fit_many(graph, ks=[2, 3, 4], out=tmp_path / "s")
    assert snmf_dist.open_study(tmp_path / "s").counts == {"waiting": 2, "running": 0, "done": 1, "failed": 0}
    assert snmf_dist.fit_many(graph, ks=[2, 3, 4], out=tmp_path / "s").counts["done"] == 3


def test_every_part_of_the_grid_goes_early():
    runs = [
        Run(f"{g}{k}{s}", g, {"k": k, "seed": s, "rho": "auto"}) for g in "ab" for k in range(2, 9) for s in (0, 1)
    ]
    first = in_order(runs)[:6]
    assert {run.graph for run in first} == {"a", "b"}
    assert {run.settings["k"] for run in first} == {2, 8, 5}
    assert {run.settings["seed"] for run in in_order(runs)[:14]} == {0}
    assert in_order(runs, "-k")[0].settings["k"] == 8
    assert in_order(runs, lambda given: given["graph"] != "b")[0].graph == "b"
    for n in (1, 2, 3, 7, 30):
        assert sorted(coarse_to_fine(n)) == list(range(n))


def test_a_table_of_a_thousand_runs_takes_under_a_second_of_processor_time(tmp_path):
    settings = [{"k": k, "seed": s, "rho": "auto"} for k in range(2, 102) for s in range(10)]
    runs = [{"run_id": run_id("f", one), "graph": "g", "settings": one} for one in settings]
    folder = StudyFolder(str(tmp_path / "s"))
    folder.prepare()
    folder.write_spec({"runs": runs, "graphs": {}, "settings": {}})
    for run in runs:
        folder.add_event("started", run["run_id"])
        folder.add_event("done", run["run_id"], status="SETTLED", captured=1.0, seconds=0.5)
    folder.write("runs.parquet", parquet(make_rows(runs, folder.events())))
    begin = time.process_time()  # the machine may be busy with other things
    assert pq.read_table(tmp_path / "s" / "runs.parquet").num_rows == 1000
    assert snmf_dist.open_study(tmp_path / "s").counts["done"] == 1000
    assert time.process_time() - begin < 1


def test_events_are_read_as_they_come_and_torn_ones_left_out(tmp_path):
    one, other = (StudyFolder(str(tmp_path)) for _ in range(2))
    assert one.events() == []
    for number, name in enumerate("abc", start=1):
        other.add_event("started", name)
        assert len(one.events()) == number
    with open(tmp_path / "events.jsonl", "ab") as file:
        file.write(b'{"event": "done", "run')  # a process was killed while it wrote
    assert len(one.events()) == 3
    other.add_event("done", "a", captured=1.0)
    assert [event["run_id"] for event in one.events()] == ["a", "b", "c", "a"]
    assert one.events() == StudyFolder(str(tmp_path)).events()
    (tmp_path / "events.jsonl").write_bytes(b"")
    assert one.events() == []


def test_a_study_may_be_in_an_object_store(graph):
    out = f"memory://study-{os.getpid()}/s"
    study = snmf_dist.fit_many(graph, ks=[2, 3], out=out)
    assert study.counts["done"] == 2
    counts = Counts()
    assert snmf_dist.fit_many(graph, ks=[2, 3], out=out, listeners=[counts]).counts["done"] == 2
    assert counts.begun == 0
    assert study.best(k=3).k == 3
    with pytest.raises(errors.StoreExists, match=r"holds .* and no study; choose another"):
        snmf_dist.fit_many(graph, ks=[2], out=f"{out}/runs")


def test_graphs_and_outputs_that_workers_do_not_see_are_refused(graph, tmp_path, client):
    url = f"memory://seen-here-alone-{os.getpid()}"
    unseen = snmf_dist.import_graph(planted_graph()[0], f"{url}/g.zarr")
    for call in (snmf_dist.fit_many, snmf_dist.choose_k):
        with pytest.raises(errors.ClusterError, match=r"does not see memory.*/g\.zarr; put it on storage"):
            call(unseen, ks=[2], out=tmp_path / "s")
        assert not (tmp_path / "s").exists()
    with pytest.raises(errors.ClusterError, match=r"does not see memory.*/s; put it on storage that all"):
        snmf_dist.fit_many(graph, ks=[2], out=f"{url}/s")


SCRIPT = """
import sys, warnings, snmf_dist
warnings.simplefilter("ignore")
from snmf_dist.engine.client import connect
from contextlib import nullcontext
with connect(sys.argv[3], timeout=60) if len(sys.argv) > 3 else nullcontext():
    snmf_dist.fit_many(sys.argv[1], out=sys.argv[2], **{given!r})
"""


def killed_again_and_again(graph, out, given, moments, *scheduler):
    """Give the same command until it ends by itself; kill it so many seconds after each time that a run begins."""
    command = [sys.executable, "-c", SCRIPT.format(given=given), graph.path, str(out), *scheduler]
    kills, seen = 0, {}
    for moment in [*moments, None]:
        events = [*StudyFolder(str(out)).events(), None]
        with subprocess.Popen(command) as child:
            while (
                moment is not None and child.poll() is None and len(StudyFolder(str(out)).events()) < len(events)
            ):
                time.sleep(0.05)
            try:
                child.wait(timeout=moment)
            except subprocess.TimeoutExpired:
                os.kill(child.pid, signal.SIGKILL)
                kills += 1
        written = {p.parent.name: p.stat().st_mtime_ns for p in (out / "runs").glob("*.zarr/zarr.json")}
        assert all(written.get(name) == when for name, when in seen.items()), "a result was lost or made twice"
        seen = written
        if moment is None:
            assert child.returncode == 0
    return kills


@pytest.mark.filterwarnings("ignore::snmf_dist.errors.ResultWarning")
def test_a_killed_client_loses_no_run_and_does_none_twice(tmp_path):
    graph = snmf_dist.import_graph(planted_graph(200, 4, seed=7)[0], tmp_path / "g.zarr", block_rows=50)
    given = {"ks": [2, 3, 4], "seeds": 2, "inits": ["random"], "stop": "paper", "tol": 1e-12, "max_iter": 300}
    expected = snmf_dist.fit_many(graph, out=tmp_path / "undisturbed", **given)
    kills = killed_again_and_again(graph, tmp_path / "s", given, [0.1, 0.5])
    found = snmf_dist.open_study(tmp_path / "s")
    assert table(found) == table(expected)
    assert max(row["attempts"] for row in found.rows) <= 1 + kills
    assert_same_results(found, expected)


def assert_same_results(found, expected):
    for row in found.rows:
        one, other = (np.asarray(study.solution(row["run_id"]).membership) for study in (found, expected))
        assert_array_equal(one, other)


@pytest.mark.study
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore::snmf_dist.errors.ResultWarning")
def test_twenty_kills_of_a_24_run_study_on_two_workers(tmp_path):
    graph = snmf_dist.import_graph(planted_graph(400, 4, seed=7)[0], tmp_path / "g.zarr", block_rows=100)
    given = {"ks": [2, 3, 4, 5], "seeds": 3, "inits": ["random", "kmeans"], "stop": "paper", "tol": 1e-12}
    given |= {"max_iter": 200, "checkpoint_every": 10}
    with scheduler() as address, worker(address), worker(address):
        with cluster.connect(address, timeout=60) as client:
            client.wait_for_workers(2, timeout=60)
            begin = time.perf_counter()
            expected = snmf_dist.fit_many(graph, out=tmp_path / "undisturbed", **given)
            most = (time.perf_counter() - begin) / 12  # so that no more than all of it is done in twenty moments
        moments = np.random.default_rng(16).uniform(0.0, most, 20).round(2).tolist()
        kills = killed_again_and_again(graph, tmp_path / "s", given, moments, address)
    found = snmf_dist.open_study(tmp_path / "s")
    print(f"{kills} kills; the runs were begun {[row['attempts'] for row in found.rows]} times")
    assert kills >= 10
    assert found.counts["done"] == 24
    assert table(found) == table(expected)
    assert_same_results(found, expected)
