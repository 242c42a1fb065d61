"""Figures of a run: how sure its memberships are, its eigenvalues, how it converged, and how runs compare."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from snmf_dist.report.aggregates import Members
from snmf_dist.report.drawing import COLORS, INK, MUTED, color_of, new_figure, to_svg
from snmf_dist.report.words import share

OWN_LINES = 40  # clusters that get a line of their own


def draw_sureness(members: Members) -> str:
    """How large a share of a row's membership its own cluster has: over all rows, and for each cluster."""
    counts = members.strength
    K, bins = counts.shape
    each = 1 < K <= OWN_LINES
    height = max(2.8, 0.19 * K + 0.7) if each else 2.8
    figure, panels = new_figure(8.6, height, ncols=2, width_ratios=(1, 1.2)) if each else new_figure(8.6, height)
    over = panels[0] if each else panels
    edges, total = np.linspace(0, 1, bins + 1), max(counts.sum(), 1)
    over.stairs(100 * counts.sum(axis=0) / total, edges, fill=True, color=COLORS[0], alpha=0.85)
    over.set(xlabel="share of the own cluster in a row's membership", ylabel="% of rows", xlim=(0, 1))
    over.grid(axis="y")
    if each:
        per = panels[1]
        for k in range(K):
            low, quarter, middle, upper, high = (_quantile(counts[k], q) for q in (0.05, 0.25, 0.5, 0.75, 0.95))
            per.plot([low, high], [k, k], color=color_of(k), linewidth=1.2)
            per.plot([quarter, upper], [k, k], color=color_of(k), linewidth=6, solid_capstyle="butt")
            per.plot(middle, k, "o", color="#ffffff", markeredgecolor=color_of(k), markersize=4.5)
        step = 1 if K <= 24 else 5
        per.set_yticks(range(0, K, step))
        per.tick_params(axis="y", length=0, labelsize=8)
        per.set(ylim=(K - 0.4, -0.6), xlim=(0, 1.01), xlabel="the same, by cluster", ylabel="cluster")
        per.grid(axis="x")
    unsure = counts[:, : bins // 2].sum() / total
    return to_svg(
        figure, f"Shares of the own cluster in the memberships; {share(unsure)} of the rows are below half"
    )


def _quantile(counts: np.ndarray, q: float) -> float:
    """Middle of the bin that has a quantile."""
    if not counts.sum():
        return float("nan")
    return (int(np.searchsorted(np.cumsum(counts), q * counts.sum())) + 0.5) / len(counts)


def draw_eigenvalues(values: Sequence[float], k: int) -> str:
    """The leading eigenvalues of A, and the gap after each."""
    figure, (top, low) = new_figure(4.7, 3.6, nrows=2, sharex=True, height_ratios=(3, 2))
    where = np.arange(1, len(values) + 1)
    gaps = -np.diff(values)
    top.plot(where, values, "-", color=MUTED, linewidth=0.8)
    top.plot(where[:k], values[:k], "o", color=COLORS[0], markersize=4)
    top.plot(where[k:], values[k:], "o", markerfacecolor="none", color=COLORS[0], markersize=4)
    top.set(ylabel="eigenvalue")
    top.grid(axis="y")
    low.bar(where[:-1], gaps, width=0.6, color=[COLORS[5] if j == k else COLORS[4] for j in where[:-1]])
    low.set(ylabel="gap after it", xlabel="number")
    low.grid(axis="y")
    low.xaxis.get_major_locator().set_params(integer=True)
    best = int(gaps.argmax()) + 1
    return to_svg(
        figure,
        f"The {len(values)} leading eigenvalues of A; the largest gap, {gaps.max():.3g}, is after the {best}.",
    )


def draw_convergence(history: Sequence[Any], bound: float) -> str:
    """The change of each iteration, and the captured share where it was taken."""
    figure, (top, low) = new_figure(4.7, 3.6, nrows=2, sharex=True, height_ratios=(3, 2))
    iterations = [record.iteration for record in history]
    taken = [record for record in history if record.evaluated]
    few = "o" if len(history) < 4 else "-"
    top.semilogy(iterations, [max(r.change, 1e-16) for r in history], few, color=COLORS[0], label="change")
    if any(record.kkt > 0 for record in taken):
        kkt = [record.kkt for record in taken]
        top.semilogy([r.iteration for r in taken], kkt, "s", markersize=3.5, color=COLORS[5], label="KKT distance")
    top.legend(loc="best", frameon=False, labelcolor=INK)
    top.grid(axis="y")
    scale, name = (bound, "captured, %") if bound > 0 else (0.01 * 100, "captured")
    values = [record.captured / scale * (100 if bound > 0 else 1) for record in taken]
    low.plot([record.iteration for record in taken], values, "o-", markersize=3.5, color=COLORS[2])
    low.set(xlabel="iteration", ylabel=name)
    low.ticklabel_format(axis="y", useOffset=False)
    low.grid(axis="y")
    low.xaxis.get_major_locator().set_params(integer=True)
    return to_svg(
        figure,
        f"Change of each iteration, from {history[0].change:.2g} to {history[-1].change:.2g}, and captured share",
    )


def draw_runs(rows: Sequence[Mapping[str, Any]], column: str, name: str) -> str:
    """One measure of the runs of a study against k; runs of one graph have one colour."""
    figure, panel = new_figure(4.7, 3.0)
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    for number, graph in enumerate(graphs):
        mine = [row for row in rows if row["graph"] == graph and row.get(column) is not None]
        ks = np.array([row["param_k"] for row in mine])
        values = np.array([row[column] for row in mine], dtype=float)
        panel.plot(ks, values, "o", markersize=4, alpha=0.7, color=color_of(number), label=str(graph))
        best = np.unique(ks)
        panel.plot(best, [values[ks == k].mean() for k in best], "-", linewidth=1, color=color_of(number))
    if 1 < len(graphs) <= 8:
        panel.legend(loc="best", frameon=False, labelcolor=INK)
    panel.set(xlabel="k", ylabel=name)
    panel.grid(axis="y")
    panel.xaxis.get_major_locator().set_params(integer=True)
    return to_svg(figure, f"{name} of the runs against k; a dot is a run, the line their mean")
