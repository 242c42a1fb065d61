"""Cluster points: write them as a Zarr array, build their graph, fit, and compare with k-means.

Run it as ``python examples/02_cluster_points.py [folder]``.
"""

import sys
import tempfile
from pathlib import Path

import zarr
from sklearn.cluster import KMeans

import snmf_dist
from snmf_dist.cli.demo import CLUSTERS, NEIGHBORS, SCALE_NEIGHBOR, make_points

POINTS, STARTS = 2000, 3


def main(folder: Path, n: int = POINTS) -> snmf_dist.Solution:
    """Points to labels."""
    folder.mkdir(parents=True, exist_ok=True)
    X, y = make_points(n)
    zarr.create_array(folder / "points.zarr", data=X, chunks=(500, 2), overwrite=True)

    # Any number of points goes through the same call; large sets are cut into cells that fit in memory.
    graph = snmf_dist.build_graph(
        folder / "points.zarr",
        folder / "graph.zarr",
        neighbors=NEIGHBORS,
        scale_neighbor=SCALE_NEIGHBOR,
        overwrite=True,
    )
    print(f"{graph.n} rows, {graph.nnz} entries; recall {graph.recall}, {graph.components} component(s)")

    # A random start finds one of many local minima: keep the one that captures most of A.
    starts = [snmf_dist.fit(graph, CLUSTERS, seed=seed, max_iter=3000) for seed in range(STARTS)]
    best = max(starts, key=lambda solution: solution.captured)
    print("captured by each start:", [round(solution.captured, 4) for solution in starts])
    print("SNMF:   ", snmf_dist.score(best.labels, y))
    print("k-means:", snmf_dist.score(KMeans(CLUSTERS, n_init=10, random_state=0).fit_predict(X), y))
    return best


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
