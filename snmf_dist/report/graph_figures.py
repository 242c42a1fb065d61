"""Figures of the graph: A in cluster order, weights between clusters, degrees, and rows on a plane."""

from collections.abc import Sequence

import numpy as np

from snmf_dist.report.aggregates import WIDE, EdgeSums
from snmf_dist.report.drawing import COLORS, INK, LINE, MARKERS, MUTED, color_of, new_figure, to_svg
from snmf_dist.report.words import count, share
from snmf_dist.result.records import Sample

NUMBERED = 24  # clusters whose numbers are written along an axis
BADGE = (0.028, 0.045)  # of the width and height of the map that the number of a cluster takes
WRITTEN = 12  # clusters between which shares are written out
SHADE = (0.0, 0.45, 0.70)
SHADE_STEPS = 16  # steps of it: fewer bytes


def _shaded(values: np.ndarray) -> np.ndarray:
    """Values from 0 to 1 as RGBA of one blue, more opaque for more: on white and on black alike."""
    pixels = np.empty((*values.shape, 4))
    pixels[..., :3] = SHADE
    pixels[..., 3] = np.round(values * SHADE_STEPS) / SHADE_STEPS
    return pixels


def _apart(clusters: Sequence[int], places: np.ndarray, room: float) -> list[int]:
    """Clusters whose numbers, written along an axis, do not cover that of one before."""
    kept: list[int] = []
    for k in clusters:
        if all(abs(places[k] - places[other]) >= room for other in kept):
            kept.append(k)
    return kept


def _free_place(mine: np.ndarray, taken: np.ndarray, room: np.ndarray) -> np.ndarray | None:
    """Of the inner half of a cluster's rows the innermost that is apart from all places taken; None without one.

    It is a row: the middle of a ring is none of the ring.
    """
    distance = np.square(mine - np.median(mine, axis=0)).sum(axis=1)
    inner = mine[np.argsort(distance, kind="stable")[: (len(mine) + 1) // 2]]
    free = (np.abs(inner[:, None] - taken) >= room).any(axis=2).all(axis=1)
    found: np.ndarray | None = inner[free.argmax()] if free.any() else None
    return found


def draw_density(edges: EdgeSums) -> str:
    """A in the order of the clusters."""
    figure, panel = new_figure(4.7, 4.5)
    filled = edges.density[edges.density > 0]
    low, high = (filled.min(), filled.max()) if len(filled) else (1.0, 1.0)
    scaled = np.log(np.maximum(edges.density, low) / low) / np.log(high / low) if high > low else 1.0
    shade = np.where(edges.density > 0, 0.12 + 0.88 * scaled, 0)
    R, K = len(edges.density), len(edges.edges)
    panel.imshow(_shaded(shade), extent=(0, R, R, 0), interpolation="none")
    starts = np.concatenate([[0], edges.edges[:-1]])
    middle = (starts + edges.edges) / 2
    wide = [k for k in range(K) if edges.edges[k] - starts[k] > R / 40]
    wide.sort(key=lambda k: starts[k] - edges.edges[k])
    wide = sorted(_apart(wide, middle, R / 26))
    for end in edges.edges[:-1] if K <= 60 else []:
        panel.axhline(end, color=MUTED, linewidth=0.4)
        panel.axvline(end, color=MUTED, linewidth=0.4)
    panel.set_xticks(middle[wide], wide, fontsize=8)
    panel.set_yticks(middle[wide], wide, fontsize=8)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(True)
    panel.set(xlabel="rows, by cluster", xlim=(0, R), ylim=(R, 0))
    inside = np.diag(edges.weight)[:K].sum() / max(edges.weight.sum(), 1e-300)
    alt = f"Entries of A with rows and columns in cluster order; {share(inside)} of the weight is within clusters"
    return to_svg(figure, alt)


def draw_quotient(edges: EdgeSums) -> str:
    """Where the weight of each cluster goes."""
    figure, panel = new_figure(4.7, 4.5)
    shares = edges.shares
    K = len(shares)
    panel.imshow(_shaded(np.sqrt(shares)), extent=(-0.5, K - 0.5, K - 0.5, -0.5), interpolation="nearest")
    if K <= WRITTEN:
        for k in range(K):
            for j in range(K):
                if shares[k, j] >= 0.0005:
                    light = shares[k, j] > 0.36
                    panel.text(
                        j,
                        k,
                        _percent(shares[k, j]),
                        ha="center",
                        va="center",
                        fontsize=8 if K <= 10 else 7,
                        color="#ffffff" if light else INK,
                    )
    step = -(-K // NUMBERED)
    panel.set_xticks(range(0, K, step))
    panel.set_yticks(range(0, K, step))
    panel.tick_params(length=0, labelsize=8)
    panel.spines[:].set_visible(True)
    panel.set(xlabel="to cluster", ylabel="from cluster", xlim=(-0.5, K - 0.5), ylim=(K - 0.5, -0.5))
    far = shares - np.diag(np.diag(shares))
    k, j = np.unravel_index(far.argmax(), far.shape)
    alt = f"Share in per cent of each cluster's edge weight that goes to each cluster, {K} by {K}"
    if K > 1 and far[k, j] > 0:
        alt += f"; the most between two is {share(far[k, j])}, from {k} to {j}"
    return to_svg(figure, alt)


def _percent(value: float) -> str:
    percent = 100 * value
    return f"{percent:.1f}" if percent < 9.95 else f"{percent:.0f}"


def draw_degrees(edges: EdgeSums) -> str:
    """How many rows have how large a degree."""
    figure, panel = new_figure(4.7, 2.7)
    total = max(edges.degree_counts.sum(), 1)
    panel.stairs(100 * edges.degree_counts / total, edges.degree_bounds, fill=True, color=COLORS[0], alpha=0.85)
    wide = edges.degree_bounds[-1] > WIDE * edges.degree_bounds[0]
    panel.set(xscale="log" if wide else "linear", xlabel="degree (sum of weights)", ylabel="% of rows")
    if wide:
        few = edges.degree_bounds[-1] < 200 * edges.degree_bounds[0]
        panel.xaxis.get_major_locator().set_params(subs=(1, 2, 5) if few else (1,))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter("")
    panel.grid(axis="y")
    middle = edges.degree_bounds[np.searchsorted(np.cumsum(edges.degree_counts), total / 2)]
    return to_svg(figure, f"Histogram of the degrees; half of the rows have a degree below {middle:.3g}")


def draw_map(sample: Sample, labels: np.ndarray, K: int, axes: str) -> str:
    """Sampled rows on a plane, each in the colour of its cluster; each cluster's number is in its middle.

    Parameters
    ----------
    sample : Sample
        The rows and their places.
    labels : ndarray of int
        Their clusters.
    K : int
        Number of clusters.
    axes : str
        What the plane is.
    """
    figure, panel = new_figure(8.6, 5.4)
    x, y = sample.places.T
    area = float(np.clip(30_000 / max(len(x), 1), 2, 16))
    none = labels < 0
    panel.scatter(x[none], y[none], s=area, color="#888888", linewidths=0, rasterized=True)
    mixed = np.random.default_rng(0).permutation(np.flatnonzero(~none))  # no cluster hides the others
    for marker_number, marker in enumerate(MARKERS):
        here = mixed[(labels[mixed] // len(COLORS)) % len(MARKERS) == marker_number]
        shades = np.array(COLORS)[labels[here] % len(COLORS)]
        panel.scatter(x[here], y[here], s=area, c=shades, marker=marker, linewidths=0, alpha=0.75, rasterized=True)
    used, rows = np.unique(labels[~none], return_counts=True)
    room, taken = np.ptp(sample.places, axis=0) * BADGE, np.empty((0, 2))
    for k in used[np.argsort(-rows, kind="stable")] if K <= 60 else []:
        place = _free_place(sample.places[labels == k], taken, room)
        if place is not None:
            taken = np.vstack([taken, place])
            badge = {
                "boxstyle": "round,pad=0.25",
                "facecolor": "#ffffff",
                "edgecolor": color_of(k),
                "linewidth": 1.2,
            }
            panel.text(*place, str(k), ha="center", va="center", fontsize=8, color="#111111", bbox=badge)
    panel.set(xticks=[], yticks=[])
    panel.spines[:].set(visible=True, color=LINE)
    if axes.startswith("the coordinates"):
        panel.set_aspect("equal", adjustable="datalim")
    return to_svg(figure, f"Map of {count(len(x))} rows in the plane of {axes}, in the colours of {K} clusters")
