"""Draw clusters.png: points that k-means cannot separate, by k-means and by snmf_dist.

Run ``python docs/images/clusters.py``; it needs the extra ``report``.
"""

import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.cluster import KMeans
from sklearn.datasets import make_circles, make_moons

import snmf_dist

COLORS = np.array(["#4269d0", "#efb118", "#ff725c", "#3ca951"])


def main() -> None:
    """Draw the points, cluster them in both ways, and save the picture beside this file."""
    rings, inside = make_circles((700, 300), factor=0.35, noise=0.06, random_state=0)
    moons, upper = make_moons((500, 500), noise=0.08, random_state=0)
    points = np.concatenate([1.3 * rings, moons + np.array([3.0, -0.25])])
    known = np.concatenate([inside, 2 + upper])

    with tempfile.TemporaryDirectory() as folder:
        graph = snmf_dist.build_graph(points, f"{folder}/graph.zarr", neighbors=40, scale_neighbor=20)
        ours = snmf_dist.fit(graph, 4).labels
    theirs = KMeans(4, n_init=10, random_state=0).fit_predict(points)

    figure = Figure(figsize=(12, 2.45), layout="constrained", facecolor="white")
    titles = {"2000 points": None, "k-means": theirs, "snmf_dist": ours}
    for axes, (title, labels) in zip(figure.subplots(1, 3), titles.items(), strict=True):
        colors = "#777777" if labels is None else COLORS[labels]
        axes.scatter(*points.T, s=3, c=colors, linewidths=0)
        if labels is not None:
            title += f": {snmf_dist.score(labels, known).accuracy:.0%} right"
        axes.set_title(title)
        axes.set(xticks=[], yticks=[], aspect="equal")
        for side in axes.spines.values():
            side.set_color("#cccccc")
    figure.savefig(Path(__file__).with_name("clusters.png"), dpi=110)


if __name__ == "__main__":
    main()
