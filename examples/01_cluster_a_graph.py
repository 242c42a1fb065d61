"""Cluster a graph: make one, import it, fit, look at the result.

Run it as ``python examples/01_cluster_a_graph.py [folder]``; it writes graph.zarr and result.zarr there.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy import sparse

import snmf_dist

NODES, GROUPS = 3000, 6


def make_graph(n: int, groups: int, seed: int = 0) -> tuple[sparse.coo_matrix, np.ndarray]:
    """Draw an undirected graph of planted groups: 20 edges a node, four of five inside its group."""
    random = np.random.default_rng(seed)
    group = random.integers(0, groups, n)
    source = np.repeat(np.arange(n), 20)
    members = [np.flatnonzero(group == g) for g in range(groups)]
    inside = np.concatenate([random.choice(members[g], 20) for g in group])
    target = np.where(random.random(len(source)) < 0.8, inside, random.integers(0, n, len(source)))
    return sparse.coo_matrix((np.ones(len(source)), (source, target)), shape=(n, n)), group


def main(folder: Path, n: int = NODES) -> snmf_dist.Solution:
    """Import, fit, print."""
    folder.mkdir(parents=True, exist_ok=True)
    edges, group = make_graph(n, GROUPS)

    # Each edge was drawn in one direction: "max" keeps it in both.
    graph = snmf_dist.import_graph(edges, folder / "graph.zarr", symmetrize="max", overwrite=True)
    print(graph)

    solution = snmf_dist.fit(
        graph, GROUPS, out=folder / "result.zarr", overwrite=True, listeners=[snmf_dist.TableLog()]
    )
    print(solution)
    print("sizes:", solution.sizes.tolist())
    print("against the planted groups:", snmf_dist.score(solution.labels, group))

    # The membership stays on disk; a few rows of it, as shares of each cluster:
    saved = snmf_dist.open_solution(folder / "result.zarr")
    rows = saved.membership[:3].compute()
    print("first rows, in shares:\n", np.round(rows / rows.sum(axis=1, keepdims=True), 2))
    return solution


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
