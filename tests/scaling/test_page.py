"""The page and the picture of a scaling study."""

from types import SimpleNamespace

import pytest

from snmf_dist.scaling.efficiency import FORETOLD_WORKERS, efficiency_rows
from snmf_dist.scaling.model import fit_model
from snmf_dist.scaling.page import draw_page
from tests.scaling.test_model import made_up_study

pytest.importorskip("matplotlib", reason="the page needs matplotlib; install snmf-dist[report]")
MACHINE = {"processor": "a toy", "cores": 2, "memory": 8e9}


@pytest.fixture(scope="module")
def study():
    more = {"nmi": 0.95, "tasks": 25.0, "repeat": 0}
    runs = [{**run, **more, "rows": run["n"]} for run in made_up_study(cores=2)]
    model = {**fit_model(runs), "machine": MACHINE, "created": "2026-01-02"}
    return SimpleNamespace(measured=runs, model=model, spec={"runs": runs})


def test_the_page_says_what_was_measured_and_what_is_foretold(study):
    page, picture = draw_page(study)
    text = page.decode()
    assert picture.startswith(b"\x89PNG")
    for words in (
        "More workers than cores measure the engine",
        "4 workers (&gt; cores)",
        "five of both are the least",
        "Efficiency, measured",
        "Efficiency, predicted",
        "The largest size, predicted by the others",
        "In one process",
        "On workers",
        "entries*K/w",
    ):
        assert words in text, words
    assert "<script" not in text
    assert 'src="http' not in text
    assert 'href="http' not in text


def test_efficiency_is_foretold_to_256_workers_and_falls_with_slower_links(study):
    rows = {row["workers"]: row for row in efficiency_rows(study.measured, study.model["places"]["workers"])}
    assert list(rows) == list(FORETOLD_WORKERS)
    assert rows[1]["strong, as measured"] == pytest.approx(1)
    assert [w for w, row in rows.items() if row["runs"]] == [1, 2, 4]
    assert rows[2]["engine"] == pytest.approx(rows[2]["engine_foretold"])
    strong = [row["strong, as measured"] for row in rows.values()]
    assert strong == sorted(strong, reverse=True)
    for row in rows.values():
        assert row["weak, 1 Gbit/s"] <= row["weak, 10 Gbit/s"] <= row["weak, as measured"] + 1e-12
