"""The command `demo`, and its points, which k-means cannot separate."""

import os
from importlib.util import find_spec
from typing import NamedTuple

import click
import numpy as np

import snmf_dist
from snmf_dist.cli.output import new_console, print_solution
from snmf_dist.cli.progress import iterations
from snmf_dist.errors import InputError, StoreExists

CLUSTERS = 4
Pair = tuple[float, float]
# The paper's q = ⌊log₂ n⌋ + 1 and p = 7 give these shapes a sparser graph, on which a random start needs
# several thousand iterations.
NEIGHBORS, SCALE_NEIGHBOR = 40, 20


class Drawing(NamedTuple):
    """Points in the plane, (n, 2), and the cluster each was drawn from, (n,)."""

    X: np.ndarray
    y: np.ndarray


def make_points(n: int = 2000, *, seed: int = 0) -> Drawing:
    """Draw `n` points from a disc inside a ring and two half rings that interlock, in random order.

    Examples
    --------
    >>> points = make_points(500)
    >>> points.X.shape, np.bincount(points.y).tolist()
    ((500, 2), [60, 190, 125, 125])
    """
    if n < 10 * NEIGHBORS:
        raise InputError(f"{n} points are too few for clusters to show; expected at least {10 * NEIGHBORS}")
    random = np.random.default_rng(seed)

    def ring(size: int, radii: Pair, angles: Pair, centre: Pair) -> np.ndarray:
        inner, outer = radii
        radius = np.sqrt(random.uniform(inner**2, outer**2, size))
        angle = np.pi * random.uniform(angles[0], angles[1], size)
        return np.column_stack((radius * np.cos(angle), radius * np.sin(angle))) + centre

    sizes = np.diff(np.round(np.array([0, 0.12, 0.5, 0.75, 1]) * n).astype(int))
    shapes = [
        ring(sizes[0], (0.0, 0.8), (0, 2), (0.0, 0.0)),
        ring(sizes[1], (1.3, 2.1), (0, 2), (0.0, 0.0)),
        ring(sizes[2], (1.2, 2.0), (0, 1), (4.6, -0.4)),
        ring(sizes[3], (1.2, 2.0), (1, 2), (6.2, 0.4)),
    ]
    mixed = random.permutation(n)
    return Drawing(np.concatenate(shapes)[mixed], np.repeat(np.arange(CLUSTERS), sizes)[mixed])


@click.command("demo")
@click.option(
    "--out", default="snmf-demo", show_default=True, help="Folder for graph, result, picture and report."
)
@click.option("--points", type=int, default=2000, show_default=True, help="How many points to draw.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the points.")
def demo_(out: str, points: int, seed: int) -> None:
    """Cluster points that k-means cannot separate, from nothing to a report to look at."""
    from sklearn.cluster import KMeans

    from snmf_dist.result.scatter import save_picture

    console = new_console()
    if os.path.exists(out) and not os.path.isdir(out):
        raise StoreExists(f"{out}: is a file; choose a folder")
    os.makedirs(out, exist_ok=True)
    graph_path, result_path, picture, page = (
        os.path.join(out, name) for name in ("demo-graph.zarr", "demo-result.zarr", "clusters.png", "report.html")
    )
    drawn = make_points(points, seed=seed)
    console.print(f"{points} points in {CLUSTERS} clusters; their neighbour graph:")
    graph = snmf_dist.build_graph(
        drawn.X,
        graph_path,
        neighbors=NEIGHBORS,
        scale_neighbor=SCALE_NEIGHBOR,
        overwrite=True,
        resume=False,
    )
    console.print(f"  {graph.n} rows, {graph.nnz} entries, in {graph_path}", markup=False)

    console.print("its clusters:")
    found = snmf_dist.fit(graph, CLUSTERS, out=result_path, overwrite=True, listeners=[iterations(console)])
    print_solution(console, found, drawn.y)
    rival = KMeans(CLUSTERS, n_init=10, random_state=0).fit_predict(drawn.X)
    accuracy = snmf_dist.score(rival, drawn.y).accuracy
    console.print(f"k-means on the same points: accuracy {accuracy:.3f}")
    console.print(f"result: {result_path}", markup=False)
    if find_spec("matplotlib") is None:
        console.print(
            "picture and report need matplotlib: install snmf-dist[report] and run the demo again", markup=False
        )
        return
    save_picture(picture, found, drawn.X)
    found.report(page, points=drawn.X, overwrite=True)
    console.print(f"picture: {picture}\nreport: {page}", markup=False)
