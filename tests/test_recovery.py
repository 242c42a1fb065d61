"""Workers and clients are killed while a run is going; it ends with the answer of an undisturbed one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import snmf_dist
from snmf_dist import errors, keeping
from snmf_dist.engine import asking, servers, waiting
from snmf_dist.engine import client as cluster
from snmf_dist.engine.plan import STEPS_AHEAD
from snmf_dist.solve.loop import CUT_EVERY
from tests.helpers import planted_graph
from tests.test_cluster import DASK, process, scheduler, worker

pytestmark = pytest.mark.filterwarnings("ignore::snmf_dist.errors.ResultWarning")  # NotConverged is one
SETTINGS = {"k": 4, "init": "random", "stop": "paper", "tol": 1e-12, "max_iter": 40, "block_rows": 50}


@pytest.fixture
def larger(tmp_path):
    W, _ = planted_graph(200, 4, seed=7)
    return snmf_dist.import_graph(W, tmp_path / "g.zarr", block_rows=50, dtype="float64")


class Kills(snmf_dist.Listener):
    """Kills a worker process after given iterations, each once; counts the iterations that are done again."""

    sees_state = False

    def __init__(self, client, moments):
        self.client, self.moments = client, list(moments)
        self.last = self.again = self.kills = 0
        self.said = []

    def on_wait(self, why):
        self.said.append(why)

    def on_iteration(self, record, state):
        self.again += record.iteration <= self.last
        self.last = max(self.last, record.iteration)
        if self.moments and record.iteration >= self.moments[0]:
            del self.moments[0]
            victims = sorted(self.client.run(os.getpid).values())
            os.kill(victims[self.kills % len(victims)], signal.SIGKILL)
            self.kills += 1


def test_lost_workers_cost_the_iterations_since_the_last_checkpoint(larger, tmp_path):
    expected = snmf_dist.fit(larger, **SETTINGS)
    with scheduler() as address, worker(address), worker(address), cluster.connect(address) as client:
        client.wait_for_workers(2, timeout=120)
        kills = Kills(client, [9, 23])
        found = snmf_dist.fit(larger, **SETTINGS, out=tmp_path / "r.zarr", checkpoint_every=3, listeners=[kills])
        assert kills.kills == 2
        assert any("continues from its last checkpoint" in text for text in kills.said)
        assert kills.again <= 2 * 8  # three since the checkpoint, and those under way
        assert_array_equal(found.membership.compute(), expected.membership.compute())
        assert found.n_iter == expected.n_iter


def kill_one(client):
    """Kill one worker process, and do not wait until anybody has noticed."""
    os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)


def test_a_worker_that_dies_after_it_was_checked_holds_nobody_up(larger, monkeypatch):
    """Its answer went with it, and Dask would wait for a worker of that address."""
    with scheduler() as address, worker(address), worker(address), cluster.connect(address) as client:
        client.wait_for_workers(2, timeout=120)
        answered = cluster._versions

        def kill_and_answer():
            monkeypatch.undo()
            kill_one(client)
            return answered()

        monkeypatch.setattr(cluster, "_versions", kill_and_answer)
        asking.limited(cluster.check_workers, client, larger.path)
        assert cluster._versions is answered


def test_a_worker_that_dies_once_its_server_is_ready_is_a_loss(larger, monkeypatch):
    with scheduler() as address, worker(address), worker(address), cluster.connect(address) as client:
        client.wait_for_workers(2, timeout=120)

        def wait_and_kill(client, *given, **more):
            waiting.wait_for(client, *given, **more)
            kill_one(client)

        monkeypatch.setattr(servers, "wait_for", wait_and_kill)
        with pytest.raises(errors.RowsLost, match="worker"):
            asking.limited(servers.Servers, client, "a run")


def test_the_same_command_continues_after_the_client_was_killed(larger, tmp_path):
    out = tmp_path / "r.zarr"
    given = SETTINGS | {"max_iter": 100_000, "out": str(out), "checkpoint_every": 20}
    code = (
        f"import snmf_dist, warnings; warnings.simplefilter('ignore'); snmf_dist.fit({larger.path!r}, **{given!r})"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        folder = tmp_path / "r.zarr.checkpoint"
        deadline = time.monotonic() + 120
        while not (folder / "b" / "zarr.json").exists() or b'"complete":true' not in (
            (folder / "b" / "zarr.json").read_bytes().replace(b" ", b"")
        ):
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.02)
        child.kill()
    assert not out.exists()
    seen = Kills(None, [])
    settings = SETTINGS | {"max_iter": 60}
    try:
        found = snmf_dist.fit(larger, **settings, out=out, listeners=[seen])
    except ValueError:  # it had done more than these before it was killed
        settings = SETTINGS | {"max_iter": 100_000, "tol": 1e-3}
        found = snmf_dist.fit(larger, **settings, out=out, listeners=[seen])
    assert any("from a checkpoint" in text for text in seen.said)
    assert np.isfinite(found.captured)
    if settings["max_iter"] == 60:
        assert_array_equal(np.asarray(found.membership), np.asarray(snmf_dist.fit(larger, **settings).membership))


def test_a_cluster_that_stays_without_workers_is_given_up(larger, tmp_path, monkeypatch):
    monkeypatch.setattr(waiting, "NO_WORKERS", 2.0)
    monkeypatch.setattr(waiting, "LOOK_EVERY", 1.0)

    class Stop(snmf_dist.Listener):
        sees_state = False

        def on_iteration(self, record, state):
            if record.iteration == 8:
                child.kill()

    command = [sys.executable, "-m", "dask", "worker", "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny"]
    with scheduler() as address:
        child = subprocess.Popen([*command, "--no-dashboard", address], stderr=subprocess.DEVNULL)
        try:
            with (
                cluster.connect(address, timeout=120),
                pytest.raises(errors.WorkLost, match="has had no workers for"),
            ):
                snmf_dist.fit(larger, **SETTINGS, out=tmp_path / "r.zarr", checkpoint_every=3, listeners=[Stop()])
        finally:
            child.kill()
            child.wait()
    assert (tmp_path / "r.zarr.checkpoint").is_dir()
    found = snmf_dist.fit(larger, **SETTINGS, out=tmp_path / "r.zarr")
    assert_array_equal(np.asarray(found.membership), np.asarray(snmf_dist.fit(larger, **SETTINGS).membership))


class LosesRows(snmf_dist.Listener):
    """Ends each attempt after so many iterations as the loss of a worker does; counts the attempts."""

    sees_state = False

    def __init__(self, iterations):
        self.iterations, self.attempts, self.done = iterations, 0, 0

    def on_iteration(self, record, state):
        self.done += 1
        if self.done == self.iterations:
            self.attempts, self.done = self.attempts + 1, 0
            raise errors.RowsLost("a worker is gone")


def test_a_run_that_no_checkpoint_comes_out_of_is_given_up(larger, tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "IN_VAIN", 0.0)
    loses = LosesRows(5)
    with pytest.raises(errors.WorkLost, match="workers were lost 11 times without a checkpoint in between"):
        snmf_dist.fit(larger, **SETTINGS, out=tmp_path / "r.zarr", checkpoint_every=100, listeners=[loses])
    assert 12 <= loses.attempts <= 13  # eleven in vain, after one or two in which the first checkpoint came


def test_a_run_moves_on_however_often_workers_are_lost(larger, tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "IN_VAIN", 0.0)
    expected, loses = snmf_dist.fit(larger, **SETTINGS), LosesRows(3)
    found = snmf_dist.fit(larger, **SETTINGS, out=tmp_path / "r.zarr", checkpoint_every=1, listeners=[loses])
    assert loses.attempts > 12
    assert_array_equal(found.membership, expected.membership)


def has_checkpoint(out):
    """Whether a checkpoint beside `out` is whole."""
    for name in "ab":
        with suppress(OSError, ValueError, KeyError):
            root = json.loads(Path(f"{out}.checkpoint/{name}/zarr.json").read_text())
            if root["attributes"]["snmf_dist"]["complete"]:
                return True
    return False


class At(snmf_dist.Listener):
    """Does something once, when an iteration has come, and a checkpoint of `out` if that is given."""

    sees_state = False

    def __init__(self, iteration, act, out=None):
        self.iteration, self.act, self.out = iteration, act, out
        self.seen = []

    def on_iteration(self, record, state):
        self.seen.append(record.iteration)
        if self.act is None or record.iteration < self.iteration:
            return
        if self.out is not None and not has_checkpoint(self.out):
            time.sleep(0.5)  # on a busy machine it takes its time
            return
        act, self.act = self.act, None
        act()


@pytest.mark.slow
def test_a_frozen_worker_is_given_up_and_the_run_goes_on(larger, tmp_path, monkeypatch):
    expected, frozen = snmf_dist.fit(larger, **SETTINGS), []
    with scheduler() as address, worker(address), worker(address), cluster.connect(address) as client:
        client.wait_for_workers(2, timeout=120)

        def freeze():  # the limit is for healthy workers of a busy machine too
            monkeypatch.setattr(waiting, "SILENT", 15.0)
            frozen.append(min(client.run(os.getpid).values()))
            os.kill(frozen[0], signal.SIGSTOP)

        try:
            found = snmf_dist.fit(
                larger, **SETTINGS, out=tmp_path / "r.zarr", checkpoint_every=3, listeners=[At(9, freeze)]
            )
        finally:
            for pid in frozen:
                with suppress(ProcessLookupError):  # its nanny has killed it, most often
                    os.kill(pid, signal.SIGKILL)
    assert_array_equal(found.membership, expected.membership)


@pytest.mark.slow
def test_a_frozen_scheduler_ends_the_run_with_its_checkpoint(larger, tmp_path, monkeypatch):
    expected, out = snmf_dist.fit(larger, **SETTINGS), tmp_path / "r.zarr"
    command = (*DASK, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    with process(*command, until=r"tcp://127\.0\.0\.1:\d+") as (child, address), worker(address):

        def freeze():  # not before: on a busy machine a scheduler that is well may take seconds
            monkeypatch.setattr(asking, "ANSWER_WITHIN", 2.0)
            monkeypatch.setattr(asking, "MUTE", 5.0)
            child.send_signal(signal.SIGSTOP)

        try:
            with cluster.connect(address), pytest.raises(errors.WorkLost, match="has not answered for 5 s"):
                snmf_dist.fit(larger, **SETTINGS, out=out, checkpoint_every=3, listeners=[At(9, freeze, out)])
        finally:
            child.send_signal(signal.SIGCONT)
            monkeypatch.undo()
    rest = At(0, None)
    assert_array_equal(
        snmf_dist.fit(larger, **SETTINGS, out=out, listeners=[rest]).membership, expected.membership
    )
    assert rest.seen[0] > 1


@pytest.mark.slow
def test_a_cluster_whose_workers_are_paused_is_given_up(larger, tmp_path, monkeypatch):
    out = tmp_path / "r.zarr"

    def pause(dask_worker):
        dask_worker.memory_manager.memory_pause_fraction = 1e-9

    def pause_all():
        monkeypatch.setattr(waiting, "STALLED", 30.0)
        client.run(pause)

    with scheduler() as address, worker(address), cluster.connect(address) as client:
        stop = At(9, pause_all, out)
        with pytest.raises(errors.WorkLost, match="all 1 workers are paused"):
            snmf_dist.fit(larger, **SETTINGS, out=out, checkpoint_every=3, listeners=[stop])
    rest = At(0, None)
    found = snmf_dist.fit(larger, **SETTINGS, out=out, listeners=[rest])
    assert rest.seen[0] > 1
    assert_array_equal(found.membership, snmf_dist.fit(larger, **SETTINGS).membership)


def ip(words, check=True):
    return subprocess.run(["ip", *words.split()], check=check, capture_output=True)


@pytest.fixture
def other_host():
    """A network namespace with a link to this one: its name, this end's address and the name of this end."""
    if shutil.which("ip") is None or os.geteuid() != 0 or ip("netns add snmf-far", check=False).returncode:
        pytest.skip("a host behind a link of its own needs root and ip (package iproute2)")
    try:
        ip("link add snmf-near type veth peer name eth0 netns snmf-far")
        ip("addr add 10.213.0.1/24 dev snmf-near")
        ip("link set snmf-near up")
        for words in ("addr add 10.213.0.2/24 dev eth0", "link set eth0 up", "link set lo up"):
            ip(f"-n snmf-far {words}")
        yield ("ip", "netns", "exec", "snmf-far"), "10.213.0.1", "snmf-near"
    finally:
        ip("netns del snmf-far", check=False)
        ip("link del snmf-near", check=False)


@pytest.mark.slow
def test_a_worker_whose_link_is_cut_is_given_up_and_the_run_goes_on(larger, tmp_path, monkeypatch, other_host):
    there, here, link = other_host
    expected = snmf_dist.fit(larger, **SETTINGS)
    with ExitStack() as stack:
        command = (*DASK, "scheduler", "--host", here, "--port", "0", "--no-dashboard")
        _, address = stack.enter_context(process(*command, until=rf"tcp://{here}:\d+"))
        for place, host in ((), here), (there, "10.213.0.2"):
            command = (*place, *DASK, "worker", address, "--host", host, "--nthreads", "1", "--no-dashboard")
            stack.enter_context(process(*command, until="Registered to"))
        client = stack.enter_context(cluster.connect(address))
        client.wait_for_workers(2, timeout=120)

        def cut():
            monkeypatch.setattr(waiting, "SILENT", 15.0)
            ip(f"link set {link} down")

        at = At(9, cut)
        found = snmf_dist.fit(larger, **SETTINGS, out=tmp_path / "r.zarr", checkpoint_every=3, listeners=[at])
    assert at.act is None
    assert_array_equal(found.membership, expected.membership)


@pytest.mark.slow
def test_a_worker_that_joins_gets_blocks_at_the_next_checkpoint(larger, tmp_path):
    expected, held = snmf_dist.fit(larger, **SETTINGS), {}
    with ExitStack() as stack:
        address = stack.enter_context(scheduler())
        stack.enter_context(worker(address))
        client = stack.enter_context(cluster.connect(address))

        def join():
            stack.enter_context(worker(address))
            client.wait_for_workers(2, timeout=120)

        def look():
            held.update({one: len(keys) for one, keys in client.has_what().items()})

        class Slow(snmf_dist.Listener):
            """Leaves the checkpoints time to become whole."""

            sees_state = False

            def on_iteration(self, record, state):
                time.sleep(0.2)

        given = {**SETTINGS, "out": tmp_path / "r.zarr", "checkpoint_every": 3}
        found = snmf_dist.fit(larger, **given, listeners=[At(6, join), Slow(), At(36, look)])
    assert len(held) == 2
    assert min(held.values()) > 0
    assert_array_equal(found.membership, expected.membership)


def test_checkpoints_at_a_url_are_continued(larger):
    expected, out = snmf_dist.fit(larger, **SETTINGS), "memory://recovery/r.zarr"

    def stop():
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        snmf_dist.fit(larger, **SETTINGS, out=out, checkpoint_every=3, listeners=[At(20, stop)])
    rest = At(0, None)
    found = snmf_dist.fit(larger, **SETTINGS, out=out, checkpoint_every=3, listeners=[rest])
    assert rest.seen[0] > 10
    assert_array_equal(found.membership, expected.membership)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_scheduler_forgets_the_tasks_of_iterations_that_are_past(larger, two_processes):
    known = []

    def count(dask_scheduler):
        return len(dask_scheduler.tasks)

    class Counts(snmf_dist.Listener):
        sees_state = False

        def on_iteration(self, record, state):
            if record.iteration % 10 == 0:
                known.append(client.run_on_scheduler(count))

    settings = {**SETTINGS, "max_iter": 1000, "tol": 1e-300}
    with two_processes.get_client() as client:
        solution = snmf_dist.fit(larger, **settings, listeners=[Counts()])
    assert solution.n_iter == 1000
    assert max(known) <= 12 * 4 * (CUT_EVERY + 2 * STEPS_AHEAD)  # at most 12 tasks a block and iteration
    assert max(known[50:]) <= 1.2 * max(known[:50])


def disturb(*options, timeout):
    """Disturb real runs; it prints of each the kills, the iterations done again and the seconds lost."""
    command = [sys.executable, "-m", "tests.chaos", *options]
    return subprocess.run(command, cwd=Path(__file__).parents[1], timeout=timeout, check=False).returncode


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_and_a_build_disturbed_in_each_phase_end_with_the_same_bits():
    assert disturb("--runs", "2", "--kinds", "phases", "build", "--iterations", "30", timeout=1700) == 0


@pytest.mark.study
@pytest.mark.timeout(3 * 3600)
def test_sixty_disturbed_runs_end_with_the_same_bits():
    assert disturb("--runs", "63", "--gaps", "6", timeout=10_000) == 0
