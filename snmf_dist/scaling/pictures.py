"""The figures of a scaling study: growth, speed-up, where the time goes, memory and quality."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from snmf_dist.report.drawing import INK, MUTED, color_of, new_figure
from snmf_dist.scaling.model import MeasuredRun, an_iteration, medians

MANY_BARS = 12


def draw_scaling(runs: Sequence[MeasuredRun], model: dict[str, Any]) -> Any:
    """All panels in one figure."""
    figure, panels = new_figure(10.2, 10.2, nrows=3, ncols=2)
    groups = medians(runs)
    draw_growth(panels[0, 0], groups, "an iteration, s", lambda run: an_iteration([run]))
    draw_growth(panels[0, 1], groups, "a whole run, s", lambda run: float(run["wall"]))
    _draw_held_out(panels[0, 1], model)
    draw_speed_up(panels[1, 0], groups)
    draw_phases(panels[1, 1], groups)
    draw_growth(panels[2, 0], groups, "memory of the largest process, GB", lambda run: run["peak_bytes"] / 1e9)
    draw_quality(panels[2, 1], groups)
    return figure


def name_of(workers: int, *, cores: int) -> str:
    """How a number of workers is called; one beyond the cores is marked."""
    if workers == 0:
        return "one process"
    text = f"{workers} worker" + ("s" if workers > 1 else "")
    return f"{text} (> cores)" if workers > cores else text


def draw_growth(panel: Any, groups: Sequence[list[MeasuredRun]], label: str, value: Any) -> None:
    """A number of each size against its entries times K, medians with their spread, and the line of slope one."""
    places = sorted({group[0]["workers"] for group in groups})
    first: tuple[float, float] | None = None
    far = 0.0
    for number, workers in enumerate(places):
        mine = [group for group in groups if group[0]["workers"] == workers]
        mine.sort(key=_work)
        x = [_work(group) for group in mine]
        values = [[value(run) for run in group] for group in mine]
        y = [float(np.median(one)) for one in values]
        spread = [[max(m - min(one), 0) for m, one in zip(y, values, strict=True)]]
        spread.append([max(max(one) - m, 0) for m, one in zip(y, values, strict=True)])
        panel.errorbar(
            x,
            y,
            yerr=spread,
            fmt="o",
            markersize=3.5,
            linewidth=0.8,
            color=color_of(number),
            label=name_of(workers, cores=mine[0][0]["cores"]),
        )
        first = first or (x[0], y[0])
        far = max(far, x[-1])
    if first is not None and far > first[0]:
        panel.plot(
            [first[0], far],
            [first[1], first[1] * far / first[0]],
            "--",
            color=MUTED,
            linewidth=0.8,
            label="slope 1",
        )
    panel.set(xscale="log", yscale="log", xlabel="entries × K", ylabel=label)
    panel.legend(loc="best", frameon=False, labelcolor=INK, fontsize=7)
    panel.grid(axis="y", alpha=0.3)


def _work(group: Sequence[MeasuredRun]) -> float:
    return float(group[0]["nnz"]) * float(group[0]["k"])


def _draw_held_out(panel: Any, model: dict[str, Any]) -> None:
    held = [one for place in model["places"].values() for one in place["held_out"]]
    if held:
        x = [one["nnz"] * one["k"] for one in held]
        y = [max(one["seconds"]["foretold"], 1e-9) for one in held]
        panel.plot(x, y, "D", markerfacecolor="none", color=INK, markersize=6, label="predicted")
        panel.legend(loc="best", frameon=False, labelcolor=INK, fontsize=7)


def draw_speed_up(panel: Any, groups: Sequence[list[MeasuredRun]]) -> None:
    """Seconds of an iteration on one worker over those on several, with the ideal and the bound by the cores."""
    cores = max(group[0]["cores"] for group in groups)
    tables: dict[Any, dict[int, float]] = {}
    for group in groups:
        if group[0]["workers"]:
            key = (group[0]["n"], group[0]["degree"], group[0]["k"])
            tables.setdefault(key, {})[group[0]["workers"]] = an_iteration(group)
    several = [(key, one) for key, one in sorted(tables.items()) if len(one) > 1 and min(one) == 1]
    most = max((max(one) for _, one in several), default=1)
    for number, (key, one) in enumerate(several[-4:]):
        w = sorted(one)
        label = f"{key[0]:,} rows, {key[1]:g} a row, K = {key[2]}"
        panel.plot(
            w, [one[1] / one[i] for i in w], "o-", markersize=3.5, linewidth=1, color=color_of(number), label=label
        )
    if several:
        panel.plot([1, most], [1, most], "--", color=MUTED, linewidth=0.8, label="ideal")
        panel.plot(
            [1, min(cores, most), most],
            [1, min(cores, most), min(cores, most)],
            ":",
            color=MUTED,
            label="bound by cores",
        )
        panel.legend(loc="best", frameon=False, labelcolor=INK, fontsize=7)
    else:
        panel.text(0.5, 0.5, "needs runs on 1 worker and on more", ha="center", transform=panel.transAxes)
    panel.set(xlabel="workers", ylabel="speed-up of an iteration")
    panel.grid(axis="y", alpha=0.3)


def draw_phases(panel: Any, groups: Sequence[list[MeasuredRun]]) -> None:
    """Where the time goes: the share of each phase, for the widest K and degree of each size and place."""
    widest: dict[Any, list[MeasuredRun]] = {}
    for group in sorted(groups, key=_work):
        widest[group[0]["n"], group[0]["workers"]] = group
    shown = sorted(widest.items(), key=lambda one: (one[0][1], one[0][0]))[-MANY_BARS:]
    left = np.zeros(len(shown))
    for number, name in enumerate(row["phase"] for row in groups[0][0]["phases"]):
        shares = np.array([np.median([_share(run, name) for run in group]) for _, group in shown])
        panel.barh(range(len(shown)), shares, left=left, color=color_of(number), label=name, height=0.7)
        left += shares
    panel.set_yticks(range(len(shown)), [f"{n:,} rows, {w or 'no'} w." for (n, w), _ in shown], fontsize=7)
    panel.set(xlabel="share of the time", xlim=(0, max(1.0, float(left.max()))))
    panel.legend(
        loc="upper center", bbox_to_anchor=(0.5, 1.18), ncols=4, frameon=False, labelcolor=INK, fontsize=7
    )


def _share(run: MeasuredRun, name: str) -> float:
    return next(float(row["seconds"]) for row in run["phases"] if row["phase"] == name) / float(run["wall"])


def draw_quality(panel: Any, groups: Sequence[list[MeasuredRun]]) -> None:
    """Agreement with the planted clusters against the rows."""
    kinds = sorted({(group[0]["degree"], group[0]["k"]) for group in groups})
    for number, (degree, k) in enumerate(kinds):
        points = sorted(
            (group[0]["n"], float(np.median([run["nmi"] for run in group])))
            for group in groups
            if (group[0]["degree"], group[0]["k"]) == (degree, k)
        )
        x, y = zip(*points, strict=True)
        panel.plot(x, y, "o", markersize=3.5, color=color_of(number), label=f"{degree:g} a row, K = {k}")
    panel.set(xscale="log", xlabel="rows", ylabel="NMI with the planted clusters")
    panel.legend(loc="best", frameon=False, labelcolor=INK, fontsize=7)
    panel.grid(axis="y", alpha=0.3)
