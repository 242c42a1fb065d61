"""Label points that came later: fit on some images, then place others, and notice those that are like none.

Run it as ``python examples/07_new_points.py [folder]``; it writes new_points.png there if matplotlib is installed.
The images are those of MNIST in ``$SNMF_DATA/mnist70k.npz``; without it the digits of scikit-learn stand in.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import snmf_dist

FITTED, NEW, DIGITS, NOISE = 6000, 1000, 10, 10


def load_images(n: int) -> tuple[np.ndarray, np.ndarray]:
    """At most `n` images as rows, and the digits they show."""
    path = Path(os.environ.get("SNMF_DATA", "data")) / "mnist70k.npz"
    if path.exists():
        with np.load(path) as file:
            X, y = file["X"], file["y"]
    else:
        print(f"{path} is not there: the digits of scikit-learn stand in; set SNMF_DATA to its folder")
        X, y = load_digits(return_X_y=True)
    some = np.random.default_rng(0).permutation(len(X))[:n]
    return X[some].astype(np.float32), y[some]


def draw(images: np.ndarray, placed: snmf_dist.result.placing.Placed, path: Path) -> None:
    """New images by their cluster, the surest first, and in the last row those that are like none."""
    from matplotlib.figure import Figure

    side, columns = int(images.shape[1] ** 0.5), 16
    K = placed.membership.shape[1]
    figure = Figure(figsize=(7.5, 0.47 * (K + 1)), facecolor="white")
    panels = figure.subplots(K + 1, columns)
    for k, row in enumerate(panels):
        mine = placed.novel if k == K else (placed.labels == k) & ~placed.novel
        order = np.flatnonzero(mine)[np.argsort(-placed.strength[mine])]
        picked = order[np.linspace(0, len(order) - 1, min(columns, len(order))).astype(int)]
        for axes, i in zip(row, [*picked, *[None] * (columns - len(picked))], strict=True):
            axes.axis("off")
            if i is not None:
                axes.imshow(images[i].reshape(side, side), cmap="gray_r")
        name = "like none" if k == K else f"cluster {k}"
        row[0].text(-0.3, 0.5, name, transform=row[0].transAxes, ha="right", va="center", fontsize=8)
    figure.subplots_adjust(0.13, 0.01, 0.99, 0.99, 0.05, 0.08)
    figure.savefig(path, dpi=80)


def main(folder: Path, fitted: int = FITTED, new: int = NEW) -> np.ndarray:
    """Yesterday's images to clusters, today's to labels."""
    folder.mkdir(parents=True, exist_ok=True)
    X, y = load_images(fitted + new)
    new = min(new, len(X) // 3)  # the small set has fewer
    np.save(folder / "fitted.npy", X[new:])

    graph = snmf_dist.build_graph(folder / "fitted.npy", folder / "images.zarr", overwrite=True)
    solution = snmf_dist.fit(graph, DIGITS, out=folder / "digits.zarr", overwrite=True)
    print(solution)

    # The result is enough tomorrow: it knows its graph, and the graph knows its points.
    later = snmf_dist.open_solution(folder / "digits.zarr")
    noise = np.random.default_rng(1).permuted(X[:NOISE], axis=1)  # the same pixels anywhere
    placed = later.place(np.concatenate([X[:new], noise]))
    print(
        f"{new} new images, {NOISE} of noise; like none: {placed.novel[:new].sum()} and {placed.novel[new:].sum()}"
    )
    print("fitted images:", snmf_dist.score(solution.labels, y[new:]))
    print("new images:   ", snmf_dist.score(placed.labels[:new], y[:new]))
    try:
        draw(np.concatenate([X[:new], noise]), placed, folder / "new_points.png")
    except ImportError:
        print("pictures need matplotlib; install snmf-dist[report]")
    return placed.labels


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
