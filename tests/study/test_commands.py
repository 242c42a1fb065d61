"""The commands `batch` and `study`."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import snmf_dist
from snmf_dist import errors
from snmf_dist.cli import main
from snmf_dist.study import choosing, work
from tests.helpers import planted_graph

SPEC = """
graphs = ["graph.zarr"]
[grid]
ks = "2:4"
seeds = 2
[settings]
max_iter = 40
[labels]
graph = "labels.npy"
[[runs]]
k = 6
init = "random"
"""


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def spec(graph, tmp_path):
    np.save(tmp_path / "labels.npy", planted_graph()[1])
    (tmp_path / "grid.toml").write_text(SPEC)
    return tmp_path / "grid.toml"


def test_batch_runs_a_toml_file_and_study_shows_it(run, spec, tmp_path):
    listed = run("batch", spec, "--out", tmp_path / "s", "--dry-run")
    assert listed.exit_code == 0, listed.output
    assert "7 runs; nothing was run" in listed.output
    assert not (tmp_path / "s").exists()
    done = run("batch", spec, "--out", tmp_path / "s")
    study = snmf_dist.open_study(tmp_path / "s")
    assert done.exit_code == study.exit_code, done.output
    assert "7 runs: 7 done" in done.output
    assert "6 running" in done.output
    assert "left" in done.output
    shown = run("study", tmp_path / "s", "--by", "ac")
    assert shown.exit_code == 0
    assert "best by ac: " + study.best_run("ac")["run_id"] in shown.output
    assert len([line for line in shown.output.splitlines() if "  done  " in line]) == 7
    wrong = run("study", tmp_path / "s", "--by", "state")
    assert wrong.exit_code == 2
    assert "'state' is not one of 'captured'" in wrong.output
    again = run("batch", spec, "--out", tmp_path / "s")
    assert again.exit_code == done.exit_code


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[grid]", "[gird]", "did you mean 'grid'"),
        ("ks =", "k =", "did you mean 'ks'"),
        ('"2:4"', '"2-4"', "ks is '2-4'"),
        ("max_iter", "max_it", "did you mean 'max_iter'"),
        ("graph.zarr", "garph.zarr", "no such file"),
        ("seeds = 2", "seeds = ", "cannot be read as TOML"),
        ('graphs = ["graph.zarr"]', "", "names no graphs"),
        ('graphs = ["graph.zarr"]', 'graphs = [["graph.zarr"]]', "graphs has a list"),
        ("[[runs]]", "[runs]", "runs is {'k': 6"),
        ("max_iter = 40", 'out = "elsewhere"', "fit_many has no setting 'out'"),
    ],
)
def test_mistakes_in_the_file_are_named(run, spec, tmp_path, old, new, message):
    spec.write_text(SPEC.replace(old, new, 1))
    done = run("batch", spec, "--out", tmp_path / "s")
    assert done.exit_code == 2
    assert message in done.output
    assert not (tmp_path / "s").exists()


def test_a_failed_run_gives_exit_code_3(run, spec, tmp_path, monkeypatch):
    fit, calls = work.fit, iter(range(99))
    monkeypatch.setattr(work, "fit", lambda *given, **named: fit(*given, **named) if next(calls) else 1 / 0)
    done = run("batch", spec, "--out", tmp_path / "s")
    assert done.exit_code == 3
    assert "6 done, 1 failed" in done.output
    assert "; ZeroDivisionError: division by zero" in done.output
    assert "Traceback" in run("study", tmp_path / "s", "--errors").output
    monkeypatch.setattr(work, "fit", fit)
    assert run("batch", spec, "--out", tmp_path / "s").exit_code in (0, 1)


def test_a_run_that_ends_the_study_gives_exit_code_3_and_bad_input_2(run, spec, tmp_path, monkeypatch):
    def fails(*given, **named):
        raise errors.StoreCorrupt("block 0 is not what was written")

    monkeypatch.setattr(work, "fit", fails)
    monkeypatch.setattr(work, "fit_stack", fails)
    done = run("batch", spec, "--out", tmp_path / "s", "--on-error", "stop")
    assert done.exit_code == 3
    assert "error: block 0 is not what was written" in done.output
    assert snmf_dist.open_study(tmp_path / "s").counts == {"waiting": 6, "running": 0, "done": 0, "failed": 1}
    spec.write_text(SPEC.replace("max_iter = 40", "max_iter = 41"))
    assert run("batch", spec, "--out", tmp_path / "s").exit_code == 2


def test_a_terminated_batch_leaves_a_valid_table_and_goes_on(tmp_path):
    graph = snmf_dist.import_graph(planted_graph(200, 4, seed=7)[0], tmp_path / "g.zarr", block_rows=50)
    (tmp_path / "grid.toml").write_text(
        f'graphs = ["{graph.path}"]\n[grid]\nks = [2, 3]\ninits = ["random"]\n'
        '[settings]\nstop = "paper"\ntol = 1e-12\nmax_iter = 100000\n'
    )
    command = [
        sys.executable,
        "-m",
        "snmf_dist",
        "batch",
        str(tmp_path / "grid.toml"),
        "--out",
        str(tmp_path / "s"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        deadline = time.monotonic() + 300
        while not list((tmp_path / "s" / "runs").glob("*.checkpoint")) and time.monotonic() < deadline:
            time.sleep(0.05)  # until it iterates, however long a busy machine takes to begin
        os.kill(child.pid, signal.SIGTERM)
        child.wait(timeout=300)
    assert child.returncode == 128 + signal.SIGTERM
    assert set(pq.read_table(tmp_path / "s" / "runs.parquet")["state"].to_pylist()) == {"waiting"}
    assert list((tmp_path / "s" / "runs").glob("*.checkpoint"))


def test_choose_k_prints_a_table_and_a_reason_and_keeps_the_picture(run, tmp_path):
    graph = snmf_dist.import_graph(planted_graph(200, 4, inside=0.5)[0], tmp_path / "g.zarr")
    out = tmp_path / "s"
    given = ("choose-k", graph.path, "-k", "2:6,9", "--out", out, "--seeds", 2, "--held-out", 0.1)
    done = run(*given)
    assert done.exit_code == 0, done.output
    assert "K = 4: its clusters are set apart" in done.output
    assert "held_out" in done.output
    assert pq.read_table(out / "labels.parquet").column_names == ["K2", "K3", "K4", "K5", "K6", "K9"]
    assert pq.read_table(out / "ks.parquet")["k"].to_pylist() == [2, 3, 4, 5, 6, 9]
    assert (out / "choice.png").stat().st_size > 10_000
    written = {path: path.stat().st_mtime_ns for path in (out / "runs").glob("*.zarr/zarr.json")}
    assert run(*given).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in written} == written
    (out / "study.json").unlink()  # results are kept
    assert run(*given).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in written} == written


def test_fits_of_choose_k_that_fail_are_said(run, graph, tmp_path, monkeypatch):
    monkeypatch.setattr(work, "fit", lambda *given, **named: 1 / 0)
    monkeypatch.setattr(work, "fit_stack", lambda *given: 1 / 0)
    done = run("choose-k", graph.path, "-k", "2:4", "--seeds", 2, "--shortlist", 1, "--out", tmp_path / "s")
    assert done.exit_code == 3, done.output
    assert "some fits failed: 2 runs: 2 failed; ZeroDivisionError" in done.output
    assert (tmp_path / "s" / "choice.json").exists()


def test_choose_k_refuses_the_folder_of_another_study_before_any_work(run, graph, tmp_path, monkeypatch):
    snmf_dist.fit_many(graph, ks=[2], out=tmp_path / "s", max_iter=900)
    monkeypatch.setattr(choosing, "screen", None)
    done = run("choose-k", graph.path, "-k", "2:4", "--out", tmp_path / "s")
    assert done.exit_code == 2, done.output
    assert "the study was begun with max_iter=900, now it is 1000" in done.output


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("-k", "2-9"), "-k is '2-9'"),
        (("-k", "2:91"), "ks is 91; expected 1 to 90"),
        (("--held-out", "1.5"), "held_out is 1.5; expected a share"),
        (("--seeds", "0"), "seeds is 0"),
    ],
)
def test_mistakes_of_choose_k_are_named(run, graph, tmp_path, given, message):
    done = run("choose-k", graph.path, "-k", "2:4", *given, "--out", tmp_path / "s")
    assert done.exit_code == 2
    assert message in done.output
    assert not (tmp_path / "s").exists()
