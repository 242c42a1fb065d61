"""Pictures of a solution. Needs matplotlib (the extra ``report``)."""

import os
from typing import Any

import numpy as np

from snmf_dist.errors import InputError
from snmf_dist.result.solution import Solution


def save_picture(path: str | os.PathLike[str], solution: Solution, points: np.ndarray) -> None:
    """Draw 2-D points in the colours of their clusters, and how the run converged, to an image file.

    Parameters
    ----------
    path : str or path-like
        The file; its suffix names the format.
    solution : Solution
        The clustering of the graph of these points.
    points : ndarray, shape (n, 2)
        The points, in the input's own order.
    """
    figure_class = _figure_class()
    figure = figure_class(figsize=(12, 4.4), layout="constrained")
    plane, curve = figure.subplots(1, 2, width_ratios=(3, 2))

    found = solution.labels >= 0
    plane.scatter(*points[~found].T, s=6, color="0.7", label="no cluster")
    colors = "tab10" if solution.k <= 10 else "tab20"  # more clusters than colours share them
    shades = solution.labels[found] % (10 if solution.k <= 10 else 20)
    plane.scatter(*points[found].T, s=6, c=shades, cmap=colors, vmin=0, vmax=9 if solution.k <= 10 else 19)
    plane.set(title=f"{solution.k} clusters of {len(points)} points", xticks=[], yticks=[])
    plane.set_aspect("equal")

    curve.semilogy([r.iteration for r in solution.history], [r.change for r in solution.history])
    if solution.settings["stop"] == "paper":
        curve.axhline(solution.settings["tol"], color="0.5", linestyle="--", linewidth=1)
        curve.annotate("tol", (1, solution.settings["tol"]), va="bottom", color="0.4")
    curve.set(
        title=f"{solution.status.name.lower()} after {solution.n_iter} iterations",
        xlabel="iteration",
        ylabel="relative change",
    )
    figure.savefig(path, dpi=120)


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure  # without pyplot: no display, no global state
    except ImportError:
        raise InputError("pictures need matplotlib; install snmf-dist[report]") from None
    return Figure
