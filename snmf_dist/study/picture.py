"""One picture of the choice of K: four panels over a shared axis of K. Needs matplotlib (the extra ``report``)."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from snmf_dist.errors import InputError
from snmf_dist.study.choice import STANDS_OUT, KChoice
from snmf_dist.study.stability import contingency

MANY = 12  # K in the clustree, at most: more would be a thicket
FLOW = 0.05  # share of a cluster below which no line is drawn


def draw_choice(
    path: str | os.PathLike[str],
    rows: Sequence[Mapping[str, Any]],
    values: np.ndarray,
    labels: Mapping[int, np.ndarray],
    choice: KChoice,
) -> None:
    """Draw what was measured at each K, and how clusters split from one K to the next.

    Parameters
    ----------
    path : str or path-like
        The file; its suffix names the format.
    rows, values, labels, choice
        As in `KStudy`.
    """
    try:
        from matplotlib.figure import Figure  # without pyplot: no display, no global state
    except ImportError:
        raise InputError("pictures need matplotlib; install snmf-dist[report]") from None
    figure = Figure(figsize=(9, 12), layout="constrained")
    quality, stable, spectrum, tree = figure.subplots(4, 1, sharex=True, height_ratios=(2, 2, 2, 4))
    _draw_quality(quality, rows)
    _draw_stability(stable, rows)
    _draw_spectrum(spectrum, values, rows)
    _draw_tree(tree, labels, choice.best[:3])
    for panel in (quality, stable, spectrum, tree):
        if choice.k is not None:
            panel.axvline(choice.k, color="tab:red", alpha=0.25, linewidth=6, zorder=0)
        panel.grid(axis="x", color="0.92")
        panel.set_axisbelow(True)
    ks = [row["k"] for row in rows]
    tree.set_xticks(ks if len(ks) <= 20 else [K for K in ks if K % 5 == 0 or ks[0] == K])
    margin = max(0.7, 0.03 * (ks[-1] - ks[0]))
    tree.set_xlim(ks[0] - margin, ks[-1] + margin)
    tree.set_xlabel("number of clusters K")
    suggested = "no K stands out" if choice.k is None else f"K = {choice.k} stands out"
    after = "" if choice.runner_up is None or choice.k is None else f"; runner-up {choice.runner_up}"
    figure.suptitle(suggested + after)
    figure.savefig(path, dpi=110)


def _draw_quality(panel: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    ks = [row["k"] for row in rows]
    panel.plot(
        ks, [row["kept_share"] for row in rows], color="tab:blue", label="kept by k-means, share of the bound"
    )
    panel.plot(ks, [row["modularity"] for row in rows], color="tab:green", label="modularity")
    fitted = [row for row in rows if "captured_share" in row]
    if fitted:
        middle = np.array([row["captured_share"] for row in fitted])
        spread = np.abs(np.array([[row["lowest"], row["highest"]] for row in fitted]).T - middle)
        where = [row["k"] for row in fitted]
        panel.errorbar(
            where, middle, spread, fmt="o", capsize=4, color="tab:orange", label="captured by fits, share"
        )
    if "held_out" in rows[0]:
        panel.plot(ks, _scaled(rows), "--", color="tab:purple", label="held-out score, highest = 1")
    panel.set(ylim=(0, 1.05))
    _head(panel, "How much is explained")


def _head(panel: Any, title: str) -> None:
    """A title, and below it the legend in one line, above the panel: it hides nothing."""
    panel.set_title(title, pad=22)
    panel.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, fontsize=8, frameon=False, borderaxespad=0.1
    )


def _scaled(rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Held-out scores as shares of the highest."""
    scores = np.array([row["held_out"] for row in rows])
    return np.asarray(scores / max(np.nan_to_num(scores).max(), np.finfo(float).tiny))


def _draw_stability(panel: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    ks = [row["k"] for row in rows]
    panel.plot(ks, [row["separation"] for row in rows], "-o", markersize=3, color="tab:red", label="separation")
    panel.axhline(STANDS_OUT, color="tab:red", linestyle=":", linewidth=1)
    panel.plot(ks, [row["agreement"] for row in rows], color="0.6", label="k-means runs agree (ARI)")
    fitted = [row for row in rows if "ari" in row]
    if fitted:
        where = [row["k"] for row in fitted]
        panel.plot(where, [row["ari"] for row in fitted], "s", color="tab:orange", label="fits agree (ARI)")
        panel.plot(where, [1 - row["pac"] for row in fitted], "x", color="tab:purple", label="1 − PAC of fits")
    panel.set(ylim=(-0.05, 1.05))
    _head(panel, "How sure it is: separation (above the dotted line K stands out), stability")


def _draw_spectrum(panel: Any, values: np.ndarray, rows: Sequence[Mapping[str, Any]]) -> None:
    panel.plot(np.arange(1, len(values) + 1), values, "o", markersize=3, color="tab:blue", label="eigenvalues")
    panel.set(title="Eigenvalues of A, and the gap after each")
    gaps = panel.twinx()
    gaps.bar([row["k"] + 0.5 for row in rows], [row["eigengap"] for row in rows], width=0.6, color="0.75")
    gaps.set_ylabel("gap", color="0.5")
    gaps.tick_params(axis="y", colors="0.5")
    panel.set_zorder(gaps.get_zorder() + 1)
    panel.patch.set_visible(False)
    panel.set_ylabel("eigenvalue")


def _draw_tree(panel: Any, labels: Mapping[int, np.ndarray], wanted: Sequence[int]) -> None:
    """Clusters of one K above each other, joined with those of the next by lines as wide as their common rows."""
    ks = _some(sorted(labels), wanted)
    n = max(len(labels[ks[0]]), 1)
    heights = _order(np.bincount(_known(labels[ks[0]]), minlength=ks[0]), None, None)
    for at, K in enumerate(ks):
        sizes = np.bincount(_known(labels[K]), minlength=K)
        if at:
            table = contingency(labels[ks[at - 1]], labels[K])
            before, heights = heights, _order(sizes, table, heights)
            for a, b in zip(*np.nonzero(table >= FLOW * np.maximum(table.sum(axis=0), 1)), strict=True):
                width = 0.4 + 9 * table[a, b] / n
                panel.plot([ks[at - 1], K], [before[a], heights[b]], color="0.75", linewidth=width, zorder=1)
        panel.scatter([K] * K, heights, s=8 + 500 * sizes / n, color="tab:blue", zorder=2)
    panel.set(
        title="How clusters split: circles are clusters, lines the rows they share", yticks=[], ylim=(-0.08, 1.08)
    )


def _known(labels: np.ndarray) -> np.ndarray:
    return np.asarray(labels[labels >= 0])


def _some(ks: list[int], wanted: Sequence[int]) -> list[int]:
    """All K if they are few; else those wanted, the first ones and then steps that grow."""
    if len(ks) <= MANY:
        return ks
    where = np.unique(np.geomspace(1, len(ks), MANY).round().astype(int)) - 1
    return sorted({*(ks[i] for i in where), *wanted})


def _order(sizes: np.ndarray, table: np.ndarray | None, before: np.ndarray | None) -> np.ndarray:
    """Heights of clusters, those that share rows with the same ones before beside each other."""
    centre = np.arange(len(sizes), dtype=float)
    if table is not None and before is not None:
        full = np.zeros((len(before), len(sizes)))
        full[: table.shape[0], : table.shape[1]] = table
        total = full.sum(axis=0)
        centre = np.divide(before @ full, total, out=np.ones(len(sizes)), where=total > 0)
    heights = np.empty(len(sizes))
    heights[np.argsort(centre, kind="stable")] = (np.arange(len(sizes)) + 0.5) / len(sizes)
    return heights
