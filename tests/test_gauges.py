"""What a run and a study on a cluster show on /metrics of the scheduler and the workers."""

from urllib.request import urlopen

import pytest
from distributed import Client, LocalCluster

import snmf_dist
from snmf_dist import gauges
from snmf_dist.engine.metrics import Board
from snmf_dist.errors import NotConverged
from snmf_dist.listeners import Listener

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed (the extra metrics)")


@pytest.fixture(scope="module")
def seen():
    """A cluster whose processes serve /metrics, and what reads them."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client, lambda: read(cluster.dashboard_link.replace("/status", "/metrics"))


def read(url):
    """The values of our metrics at a URL, by name and labels."""
    with urlopen(url, timeout=120) as page:
        text = page.read().decode()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line[:5] == "snmf_"
    }


class Look(Listener):
    """Reads /metrics in the middle of a run."""

    def __init__(self, metrics):
        self.metrics, self.found = metrics, {}

    def on_iteration(self, record, state):
        if record.iteration in (10, 15):  # what iteration 10 sent may be under way
            self.found |= self.metrics()


def test_a_run_shows_its_numbers_while_it_goes_and_none_after_it(seen, graph, tmp_path, monkeypatch):
    _, metrics = seen
    monkeypatch.setattr(gauges, "SEND_EVERY", 0.0)
    look = Look(metrics)
    how = {"stop": "paper", "tol": 1e-5, "max_iter": 20, "checkpoint_every": 5}
    with pytest.warns(NotConverged):
        found = snmf_dist.fit(graph, 3, out=tmp_path / "seen.zarr", listeners=[look], **how)
    run = '{run="seen.zarr"}'
    assert 5 <= look.found[f"snmf_iteration{run}"] <= 15
    assert look.found[f"snmf_captured_share{run}"] == pytest.approx(found.captured / found.bound, rel=0.05)
    assert look.found[f"snmf_kkt{run}"] < 1
    assert 0 <= look.found[f"snmf_checkpoint_age_seconds{run}"] < 60
    assert not [name for name in metrics() if run in name]


def test_workers_count_the_rows_that_they_send(seen, graph, tmp_path):
    client, _ = seen
    snmf_dist.fit(graph, 3)
    links = [one["services"]["dashboard"] for one in client.scheduler_info()["workers"].values()]
    sent = [read(f"http://127.0.0.1:{port}/metrics") for port in links]
    assert sum(one["snmf_rows_sent_total"] for one in sent) > 90
    assert sum(one["snmf_bytes_sent_total"] for one in sent) > 90 * 3 * 8


def test_a_study_shows_its_runs_by_state(seen, graph, tmp_path):
    _, metrics = seen
    snmf_dist.fit_many(graph, ks=[2, 3], out=tmp_path / "grid")
    assert metrics()['snmf_study_runs{state="done",study="grid"}'] == 2


def test_ages_grow_by_themselves_and_what_is_silent_for_a_day_is_forgotten(monkeypatch):
    board = Board()
    board.rows[("run", "a"),] = (1000.0, {"snmf_iteration": 7.0, "snmf_silent_seconds": 0.0})
    monkeypatch.setattr("snmf_dist.engine.metrics.time.monotonic", lambda: 1090.0)
    values = {family.name: family.samples[0].value for family in board.collect()}
    assert values == {"snmf_iteration": 7.0, "snmf_silent_seconds": 90.0}
    monkeypatch.setattr("snmf_dist.engine.metrics.time.monotonic", lambda: 1000.0 + 86401)
    assert list(board.collect()) == []
