"""A result is never lost to its output, and two writers never share one."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import snmf_dist
from snmf_dist import errors, locks, storage
from snmf_dist.errors import reason
from snmf_dist.locks import only_writer
from tests.helpers import planted_graph

FIT = [sys.executable, "-m", "snmf_dist", "fit"]
HOME = Path(__file__).parents[1]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 400 kB, and a function that leaves so many bytes of it free."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a tmpfs that fills up needs root")

    def leave(free):
        with open(place / "filling", "wb") as file:
            found = os.statvfs(place)
            file.write(b"\0" * max(found.f_bavail * found.f_frsize - free, 0))

    yield place, leave
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def command(graph, tmp_path):
    """Run ``snmf-dist fit`` on the graph with more arguments, from the folder of the test."""

    def run(*more, out="r.zarr", encoding="utf-8", **streams):
        given = [*FIT, graph.path, "-k", "3", "--rho", "0.3", "--out", str(out), *more]
        environment = {**os.environ, "PYTHONPATH": str(HOME), "PYTHONIOENCODING": encoding}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        return subprocess.run(given, cwd=tmp_path, env=environment, text=True, check=False, **streams)

    return run


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_table_that_cannot_be_written_costs_no_result(command, tmp_path):
    with open("/dev/full", "w") as full:
        done = command(stdout=full)
    assert done.returncode == 0, done.stderr
    assert "warning: standard output was not written: no room is left on the disk" in done.stderr
    snmf_dist.open_solution(tmp_path / "r.zarr").validate()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_lines_of_json_that_cannot_be_written_cost_no_result(command, tmp_path):
    done = command("--json-lines", "/dev/full")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the iterations are no longer written (no room is left on the disk)") == 1
    snmf_dist.open_solution(tmp_path / "r.zarr").validate()


def test_a_reader_that_goes_away_changes_no_exit_code(command, tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = command(stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    snmf_dist.open_solution(tmp_path / "r.zarr").validate()


def test_closed_output_costs_no_result(graph, tmp_path):
    given = ["-c", 'exec "$@" >&- 2>&-', "sh", *FIT, graph.path, "-k", "3", "--rho", "0.3", "--out", "r.zarr"]
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    assert subprocess.run(["sh", *given], cwd=tmp_path, env=environment, check=False).returncode == 0
    snmf_dist.open_solution(tmp_path / "r.zarr").validate()


def test_lines_of_json_go_to_standard_output_and_all_else_to_standard_error(command):
    done = command("--json-lines", "-")
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert (events[0], events[-1]) == ("start", "end")
    assert "result: r.zarr" in done.stderr


def test_a_terminal_that_knows_ascii_only_gets_question_marks(command):
    done = command(encoding="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    shown = subprocess.run(
        [sys.executable, "-m", "snmf_dist", "--help"],
        env={**os.environ, "PYTHONPATH": str(HOME), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "A ? LL?" in shown.stdout


def test_a_run_whose_result_has_no_room_does_not_begin(small_disk, graph):
    place, leave = small_disk
    leave(4096)
    heard = []

    class Watch(snmf_dist.Listener):
        def on_start(self, settings):
            heard.append(settings)

    with pytest.raises(errors.NoRoom, match=r"takes up to [\d,]+ bytes, but [\d,]+ are free"):
        snmf_dist.fit(graph, 30, out=place / "r.zarr", listeners=[Watch()])
    assert not heard


class FillsTheDisk(snmf_dist.Listener):
    """Leaves a page free when the run has begun."""

    def __init__(self, leave):
        self.leave = leave

    def on_iteration(self, record, state):
        self.leave(4096)


def test_a_disk_that_fills_up_during_the_run_leaves_the_solution_in_the_error(small_disk, graph, tmp_path):
    place, leave = small_disk
    listeners = [FillsTheDisk(leave)]
    with pytest.raises(errors.ResultNotSaved, match="no room is left on the disk") as caught:
        snmf_dist.fit(graph, 3, rho=0.3, out=place / "r.zarr", checkpoint_every=None, listeners=listeners)
    assert sorted(os.listdir(place)) == ["filling"]
    caught.value.solution.save(tmp_path / "r.zarr")
    kept = snmf_dist.open_solution(tmp_path / "r.zarr")
    kept.validate()
    assert_array_equal(kept.labels, snmf_dist.fit(graph, 3, rho=0.3).labels)


def test_the_command_keeps_a_result_elsewhere_and_says_how_to_fetch_it(graph, small_disk, tmp_path, monkeypatch):
    from click.testing import CliRunner

    from snmf_dist.cli import fits, main

    place, leave = small_disk
    monkeypatch.setattr(fits, "iterations", lambda console: FillsTheDisk(leave))
    monkeypatch.setattr(fits, "temporary_folder", lambda: str(tmp_path))
    out = place / "r.zarr"
    done = CliRunner().invoke(main, ["fit", graph.path, "-k", "3", "--rho", "0.3", "--out", str(out)])
    assert done.exit_code == 3
    assert "no room is left on the disk" in done.stderr
    fetch = done.stderr.split("Fetch it with: ")[1].strip()
    os.remove(place / "filling")
    subprocess.run(fetch, shell=True, check=True)
    snmf_dist.open_solution(out).validate()


def test_a_disk_that_fills_up_is_named(graph, small_disk, tmp_path):
    place, leave = small_disk
    leave(40_000)
    X = np.random.default_rng(0).standard_normal((2000, 5))
    solution = snmf_dist.fit(graph, 3, rho=0.3)
    full = "no room is left on its disk; free some room, and"
    with pytest.raises(errors.NoRoom, match=rf"{place}/g\.zarr: {full} import the graph again"):
        snmf_dist.import_graph(planted_graph(400, 2)[0], place / "g.zarr")
    with pytest.raises(errors.NoRoom, match=rf"{place}/toy: {full} generate the data again"):
        snmf_dist.generate("points", place / "toy", 2000, 3)
    leave(0)
    with pytest.raises(errors.NoRoom, match=rf"{place}/r\.csv: {full} write it again"):
        solution.export(place / "r.csv")
    assert os.listdir(place) == ["filling"]
    leave(40_000)
    with pytest.raises(errors.NoRoom, match=rf"{place}/b\.zarr: {full} make the same call again: it continues"):
        snmf_dist.build_graph(X, place / "b.zarr")


def test_a_listener_that_cannot_write_is_warned_of_once(graph):
    class Torn(snmf_dist.Listener):
        heard = 0

        def on_iteration(self, record, state):
            self.heard += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    listener = Torn()
    with pytest.warns(errors.ResultWarning, match="Torn: its lines are no longer written") as caught:
        assert snmf_dist.fit(graph, 3, rho=0.3, listeners=[listener]).n_iter > 1
    assert (listener.heard, len(caught)) == (1, 1)


def test_reasons_are_words():
    assert reason(OSError("960000 requested and 692192 written")) == "no room is left on the disk"
    assert reason(BrokenPipeError(errno.EPIPE, "Broken pipe")) == "its reader has gone"
    assert reason(PermissionError(errno.EACCES, "Permission denied")) == "PermissionError: Permission denied"


def test_a_second_fit_to_one_place_is_refused_before_it_works(graph, tmp_path):
    out = tmp_path / "r.zarr"

    class Second(snmf_dist.Listener):
        def on_start(self, settings):
            with pytest.raises(errors.OutputBusy, match=rf"process {os.getpid()} on .*, for 0:0"):
                snmf_dist.fit(tmp_path / "no graph.zarr", 3, out=out)

    snmf_dist.fit(graph, 3, rho=0.3, out=out, listeners=[Second()])
    assert sorted(os.listdir(tmp_path)) == ["graph.zarr", "r.zarr"]


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
    code = f"from snmf_dist.locks import only_writer\nwith only_writer({str(tmp_path / 'x')!r}):\n"
    code += "    print('held', flush=True)\n    import time; time.sleep(60)"
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as other:
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(errors.OutputBusy, match=f"process {other.pid} on"),
            only_writer(str(tmp_path / "x")),
        ):
            pass
        other.send_signal(signal.SIGKILL)
    with (
        pytest.warns(errors.ResultWarning, match=f"taken over .*process {other.pid}"),
        only_writer(f"{tmp_path}/x"),
    ):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("age", "busy"), [(60, True), (2 * locks.STALE, False)])
def test_the_lock_of_another_host_counts_for_a_day(tmp_path, age, busy):
    owner = {"pid": 1, "host": "elsewhere", "since": time.time() - age}
    (tmp_path / ".x.lock").write_text(json.dumps(owner))
    expected = pytest.raises(errors.OutputBusy, match="process 1 on elsewhere, for 0:01:00") if busy else None
    with (
        expected or pytest.warns(errors.ResultWarning, match="taken over"),
        only_writer(str(tmp_path / "x")),
    ):
        pass


def test_a_store_that_is_replaced_is_never_missing(tmp_path):
    """A reader finds the old store or the new one, however often it looks."""
    path = str(tmp_path / "g.zarr")
    one, two = (snmf_dist.import_graph(planted_graph(seed=i)[0], f"{path}.{i}").fingerprint for i in (0, 1))
    snmf_dist.import_graph(planted_graph(seed=0)[0], path)
    if not storage._exchange(f"{path}.0", f"{path}.1"):
        pytest.skip("this file system cannot exchange two folders at once")
    code = "import snmf_dist, tests.helpers as h\nfor i in range(8):\n    snmf_dist.import_graph(h.planted_graph("
    code += f"seed=i % 2)[0], {path!r}, overwrite=True)"
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    seen, said = set(), set()
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as writer:
        while writer.poll() is None:
            try:
                opened = snmf_dist.open_graph(path)
                opened.read_rows(0, opened.n)
                seen.add(opened.fingerprint)
            except errors.StoreCorrupt as error:
                said.add(str(error))
    assert all("was replaced while it was in use; open it again" in text for text in said)
    assert seen == {one, two}
    assert writer.returncode == 0


def test_tilde_is_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    snmf_dist.import_graph(planted_graph()[0], "~/g.zarr")
    assert os.path.isdir(tmp_path / "g.zarr")
    assert snmf_dist.fit("~/g.zarr", 3, rho=0.3).labels.shape == (90,)
    assert np.isfinite(snmf_dist.open_graph("~/g.zarr").degree).all()
