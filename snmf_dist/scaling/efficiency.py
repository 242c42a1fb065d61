"""How well many workers are used: what was measured, and what the cost model predicts up to 256 workers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from snmf_dist.scaling.model import FitSize, MeasuredRun, cost_of, foretell, job_of

FORETOLD_WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LINKS = {"as measured": None, "10 Gbit/s": 1.25e9, "1 Gbit/s": 1.25e8}  # bytes a second, each way


def efficiency_rows(runs: Sequence[MeasuredRun], place: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a number of workers: what the engine took, as measured, and the efficiency that is predicted.

    Strong efficiency is that of the largest graph measured, on w workers instead of one; weak that of a graph that
    is w times as large. For a link that is slower than the measured one, bytes over speed is added.

    Parameters
    ----------
    runs : sequence of mapping
        As `ScalingStudy.measured` has them.
    place : mapping
        The model of runs on workers.
    """
    mine = [run for run in runs if run["workers"]]
    largest = max(mine, key=lambda run: run["nnz"] * run["k"])
    base = job_of(largest)
    share = place["typical"]["halo_share"]
    measured = sorted({run["workers"] for run in mine})
    found = []
    for w in sorted({*FORETOLD_WORKERS, *measured}):
        same = [run for run in mine if run["workers"] == w]
        row: dict[str, Any] = {"workers": w, "runs": len(same), "more_than_cores": w > largest["cores"]}
        row["engine"] = _median([cost_of(run, "engine") for run in same])
        row["tasks"] = _median([run["tasks"] for run in same])
        row["engine_foretold"] = foretell(place, _on(base, w, 1, share))["engine"]
        for name, speed in LINKS.items():
            alone = _step(place, _on(base, 1, 1, share), speed)
            row[f"strong, {name}"] = alone / (w * _step(place, _on(base, w, 1, share), speed))
            row[f"weak, {name}"] = alone / _step(place, _on(base, w, w, share), speed)
        found.append(row)
    return found


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _on(base: FitSize, workers: int, times: int, share: float) -> FitSize:
    """The job, so many times as large, on so many workers."""
    rows = base.rows * times
    halo = share * rows * (workers - 1) / workers
    return replace(base, rows=rows, entries=base.entries * times, workers=workers, halo=halo)


def _step(place: Mapping[str, Any], job: FitSize, speed: float | None) -> float:
    """Seconds of an iteration."""
    costs = foretell(place, job)
    halo = costs["halo"]
    if speed is not None:
        halo = max(halo, costs["traffic"] / job.workers / speed)
    return costs["sweep"] + costs["engine"] + halo
