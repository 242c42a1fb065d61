"""A run that was interrupted continues from its checkpoint, bit for bit; what does not fit is refused by name."""

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Client
from numpy.testing import assert_allclose, assert_array_equal

import snmf_dist
from snmf_dist import Status, errors
from snmf_dist.cli import main
from snmf_dist.engine.plan import plan
from tests.test_memory import only

pytestmark = pytest.mark.filterwarnings(
    "ignore::snmf_dist.errors.NotConverged", "ignore::snmf_dist.errors.ResultWarning"
)


class StopAt(snmf_dist.Listener):
    """Ends a run as a kill would, after an iteration; remembers where runs began."""

    sees_state = False

    def __init__(self, iteration=None):
        self.iteration, self.first, self.said = iteration, None, []

    def on_wait(self, why):
        self.said.append(why)

    def on_iteration(self, record, state):
        self.first = self.first or record.iteration
        if record.iteration == self.iteration:
            raise ZeroDivisionError("killed")


def interrupted_and_continued(graph, out, stop_at=13, **settings):
    """The solution of a run that was cut off in the middle, and the iteration it continued with."""
    with pytest.raises(ZeroDivisionError):
        snmf_dist.fit(graph, 3, **settings, out=out, checkpoint_every=5, listeners=[StopAt(stop_at)])
    assert (out.parent / f"{out.name}.checkpoint").is_dir()
    assert not out.exists()
    watch = StopAt()
    solution = snmf_dist.fit(graph, 3, **settings, out=out, save_state=True, listeners=[watch])
    assert not (out.parent / f"{out.name}.checkpoint").exists()
    return solution, watch.first


def same(one, other):
    assert_array_equal(np.asarray(one.membership), np.asarray(other.membership))
    assert_array_equal(one.labels, other.labels)
    assert (one.status, one.n_iter, one.captured, one.n_products) == (
        other.status,
        other.n_iter,
        other.captured,
        other.n_products,
    )
    trace = [[(r.iteration, r.change, r.rho, r.products) for r in s.history] for s in (one, other)]
    assert trace[0] == trace[1]
    assert one.provenance["eigenvalues"] == other.provenance["eigenvalues"]
    if one.spectral_labels is not None:
        assert_array_equal(one.spectral_labels, other.spectral_labels)


RUNS = [
    {"init": "kmeans", "stop": "kkt", "tol": 1e-9, "max_iter": 30},
    {"init": "random", "stop": "paper", "tol": 1e-9, "max_iter": 30},
    {"init": "random", "n_init": 3, "rho": 0.3, "stop": "paper", "tol": 1e-3, "max_iter": 60},
    {"init": "spectral", "solver": "hals", "stop": "paper", "tol": 1e-12, "max_iter": 25},
    {"init": "random", "solver": "apg", "stop": "paper", "tol": 1e-12, "max_iter": 18},
]


@pytest.mark.parametrize("settings", RUNS)
def test_an_interrupted_run_continues_bit_for_bit(graph, tmp_path, settings):
    found, first = interrupted_and_continued(graph, tmp_path / "r.zarr", **settings)
    assert 6 <= first <= 14
    same(found, snmf_dist.fit(graph, 3, **settings))


@pytest.mark.parametrize("way", ["A streamed", "on disk"])
def test_it_does_so_streamed_and_on_disk(graph, tmp_path, monkeypatch, way):
    monkeypatch.setattr("snmf_dist.api.plan", lambda *a, **k: only(way, plan(*a, **k)))
    found, first = interrupted_and_continued(graph, tmp_path / "r.zarr", **RUNS[1])
    assert first > 5
    monkeypatch.undo()
    same(found, snmf_dist.fit(graph, 3, **RUNS[1]))


@pytest.mark.parametrize("settings", [RUNS[0], RUNS[2]])
def test_it_does_so_on_a_cluster_and_changes_places(graph, tmp_path, two_processes, settings):
    expected = snmf_dist.fit(graph, 3, **settings, block_rows=25)
    with Client(two_processes):
        found, first = interrupted_and_continued(graph, tmp_path / "a.zarr", **settings, block_rows=25)
        assert first > 5
        same(found, expected)
        with pytest.raises(ZeroDivisionError):
            snmf_dist.fit(
                graph,
                3,
                **settings,
                block_rows=25,
                out=tmp_path / "b.zarr",
                checkpoint_every=5,
                listeners=[StopAt(13)],
            )
    same(snmf_dist.fit(graph, 3, **settings, block_rows=25, out=tmp_path / "b.zarr"), expected)


def cut_off(graph, out, **settings):
    given = {"init": "random", "stop": "paper", "tol": 1e-9, "max_iter": 30, **settings}
    with pytest.raises(ZeroDivisionError):
        snmf_dist.fit(graph, 3, **given, out=out, checkpoint_every=4, listeners=[StopAt(13)])
    return given


def test_other_settings_are_refused_by_name_and_may_start_over(graph, tmp_path):
    out = tmp_path / "r.zarr"
    given = cut_off(graph, out)
    with pytest.raises(errors.InputError, match=r"unfinished run with seed=0, now it is 1; pass resume=False"):
        snmf_dist.fit(graph, 3, **given, seed=1, out=out)
    watch = StopAt()
    found = snmf_dist.fit(graph, 3, **given, seed=1, out=out, resume=False, listeners=[watch])
    assert watch.first == 1
    same(found, snmf_dist.fit(graph, 3, **given, seed=1))


def test_another_graph_is_refused(graph, tmp_path):
    out = tmp_path / "r.zarr"
    given = cut_off(graph, out)
    W = graph.read_rows(0, graph.n) * 2
    other = snmf_dist.import_graph(W, tmp_path / "other.zarr", dtype="float64", normalize=None)
    with pytest.raises(errors.InputError, match="unfinished run on another graph"):
        snmf_dist.fit(other, 3, **given, out=out)


def test_the_iteration_limit_may_be_raised(graph, tmp_path):
    out = tmp_path / "r.zarr"
    given = cut_off(graph, out)
    found = snmf_dist.fit(graph, 3, **given | {"max_iter": 40}, out=out)
    same(found, snmf_dist.fit(graph, 3, **given | {"max_iter": 40}))


def test_tolerance_and_memory_may_be_others(graph, tmp_path):
    out = tmp_path / "r.zarr"
    given = cut_off(graph, out) | {"tol": 1.0}
    watch = StopAt()
    found = snmf_dist.fit(graph, 3, **given, memory_limit="1TB", out=out, listeners=[watch])
    assert watch.first > 4
    assert found.status is Status.CONVERGED


def test_an_iteration_limit_that_is_past_already_is_refused_in_words(graph, tmp_path):
    out = tmp_path / "r.zarr"
    given = cut_off(graph, out)
    with pytest.raises(errors.InputError, match=r"5 iterations are allowed, and \d+ are done; raise max_iter"):
        snmf_dist.fit(graph, 3, **given | {"max_iter": 5}, out=out)


def test_a_torn_generation_leaves_the_other_one(graph, tmp_path):
    out = tmp_path / "r.zarr"
    given = cut_off(graph, out)
    folder = tmp_path / "r.zarr.checkpoint"
    numbers = {
        name: json.loads((folder / name / "zarr.json").read_text())["attributes"]["snmf_dist"].get("number", 0)
        for name in "ab"
    }
    newest = max(numbers, key=numbers.get)
    (folder / newest / "zarr.json").write_text("{")
    watch = StopAt()
    found = snmf_dist.fit(graph, 3, **given, out=out, listeners=[watch])
    assert 1 < watch.first <= 13
    same(found, snmf_dist.fit(graph, 3, **given))


@pytest.mark.parametrize("name", ["zarr.json", "state-X/zarr.json", "labels/zarr.json", "state-Y/c/0/0"])
def test_the_older_generation_is_used_whatever_file_of_the_newest_is_torn(graph, tmp_path, name):
    out = tmp_path / "r.zarr"
    given = cut_off(graph, out)
    folder = tmp_path / "r.zarr.checkpoint"
    number = {one: json.loads((folder / one / "zarr.json").read_text())["attributes"]["snmf_dist"] for one in "ab"}
    newest = max("ab", key=lambda one: number[one]["number"])
    (folder / newest / name).write_bytes(b"{")
    watch = StopAt()
    found = snmf_dist.fit(graph, 3, **given, out=out, listeners=[watch])
    assert watch.first > 4
    assert_array_equal(np.asarray(found.membership), np.asarray(snmf_dist.fit(graph, 3, **given).membership))


def test_checkpoints_that_cannot_be_read_are_named_and_the_run_starts_over(graph, tmp_path):
    out = tmp_path / "r.zarr"
    with pytest.raises(ZeroDivisionError):
        snmf_dist.fit(graph, 3, init="random", out=out, checkpoint_every=5, listeners=[StopAt(13)])
    for name in "ab":
        (tmp_path / "r.zarr.checkpoint" / name / "zarr.json").write_text('{"zarr_')
    watch = StopAt()
    with pytest.warns(
        errors.ResultWarning, match=r"r\.zarr\.checkpoint: no checkpoint can be read .* starts over"
    ):
        snmf_dist.fit(graph, 3, init="random", out=out, listeners=[watch])
    assert watch.first == 1


def test_check_reads_checkpoints(graph, tmp_path):
    cut_off(graph, tmp_path / "r.zarr")
    folder = tmp_path / "r.zarr.checkpoint"
    assert CliRunner().invoke(main, ["check", str(folder)]).exit_code == 0
    chunk = next(path for path in (folder / "a" / "state-X" / "c").rglob("*") if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-8] + bytes(8))
    found = CliRunner().invoke(main, ["check", str(folder)])
    assert found.exit_code != 0
    assert "state-X" in found.output


def test_checkpoints_of_the_first_format_are_continued(tmp_path):
    with zipfile.ZipFile(Path(__file__).parent / "formats/checkpoint-1.zip") as archive:
        archive.extractall(tmp_path)
    graph = snmf_dist.open_graph(tmp_path / "graph.zarr")
    assert (
        "types"
        not in json.loads((tmp_path / "r.zarr.checkpoint/a/zarr.json").read_text())["attributes"]["snmf_dist"]
    )
    given = {"init": "random", "rho": 0.3, "stop": "paper", "tol": 1e-9, "max_iter": 30}
    watch = StopAt()
    found = snmf_dist.fit(graph, 3, **given, out=tmp_path / "r.zarr", listeners=[watch])
    assert watch.first == 10
    whole = snmf_dist.fit(graph, 3, **given)
    assert_allclose(
        np.asarray(found.membership), np.asarray(whole.membership), atol=1e-8
    )  # another machine's bits


def test_a_flipped_byte_in_a_checkpoint_is_noticed(graph, tmp_path):
    out = tmp_path / "r.zarr"
    given = cut_off(graph, out)
    folder = tmp_path / "r.zarr.checkpoint"
    for name in "ab":
        chunk = next(
            path for path in (folder / name / "state-X").rglob("*") if path.is_file() and "c" in path.parts
        )
        raw = bytearray(chunk.read_bytes())
        raw[len(raw) // 2] ^= 1
        chunk.write_bytes(raw)
    with pytest.raises(errors.StoreCorrupt, match=r"rows 0:90 of state-X are not what was written"):
        snmf_dist.fit(graph, 3, **given, out=out)


def test_a_time_limit_ends_with_the_best_so_far_and_the_same_call_continues(graph, tmp_path):
    out = tmp_path / "r.zarr"
    settings = {"init": "random", "stop": "paper", "tol": 1e-9, "max_iter": 40}
    first = snmf_dist.fit(graph, 3, **settings, out=out, time_limit=1e-3)
    assert first.status is Status.OUT_OF_TIME
    assert first.n_iter < 40
    assert not out.exists()
    watch = StopAt()
    found = snmf_dist.fit(graph, 3, **settings, out=out, listeners=[watch])
    assert watch.said
    assert found.n_iter == 40
    assert_array_equal(np.asarray(found.membership), np.asarray(snmf_dist.fit(graph, 3, **settings).membership))


def test_checkpoints_that_cannot_be_written_do_not_end_the_run(graph, tmp_path, monkeypatch):
    def full(*arguments, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("snmf_dist.result.checkpoints.CheckpointFolder.writer", full)
    with pytest.warns(errors.ResultWarning, match="no more checkpoints are written"):
        found = snmf_dist.fit(graph, 3, init="random", out=tmp_path / "r.zarr", checkpoint_every=3)
    assert found.labels.shape == (90,)
    assert (tmp_path / "r.zarr").exists()


def test_the_result_has_reached_the_disk_before_the_checkpoint_goes(graph, tmp_path, monkeypatch):
    """A power failure at any moment leaves the one or the other."""
    out, folder, reached = tmp_path / "r.zarr", tmp_path / "r.zarr.checkpoint", []
    fsync = os.fsync

    def note(handle):
        if folder.exists():
            reached.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    snmf_dist.fit(graph, 3, out=out, checkpoint_every=2)
    assert not folder.exists()
    files = {str(path) for path in out.rglob("*")}
    assert {str(tmp_path), str(out), *files} <= set(reached)


def test_a_run_that_is_ended_at_once_says_where_its_checkpoint_is(graph, tmp_path):
    out, folder = tmp_path / "r.zarr", tmp_path / "r.zarr.checkpoint"
    code = """
import sys
from snmf_dist.cli import commands
commands.ask_to_stop = lambda number: False
commands.main(sys.argv[1:])
"""
    given = ("fit", graph.path, "-k", 3, "--init", "random", "--rho", 1e-4, "--out", out, "--max-iter", 10**6)
    command = [sys.executable, "-c", code, *map(str, given), "--stop", "paper", "--tol", "1e-30"]
    with subprocess.Popen(
        [*command, "--checkpoint-every", "5"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as child:
        while child.poll() is None and not (folder / "a").exists():  # "b" is whole then
            time.sleep(0.02)
        child.terminate()
        said = child.stderr.read()
    assert child.returncode == 143
    assert f"the same command continues from {folder}" in said
    watch = StopAt()
    settings = {"init": "random", "rho": 1e-4, "stop": "paper", "tol": 1.0, "max_iter": 10**6}
    snmf_dist.fit(graph, 3, **settings, out=out, listeners=[watch])
    assert watch.first > 1


def test_nothing_is_left_beside_a_result(graph, tmp_path):
    snmf_dist.fit(graph, 3, out=tmp_path / "r.zarr", checkpoint_every=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.zarr", "r.zarr"]
    shutil.rmtree(tmp_path / "r.zarr")
