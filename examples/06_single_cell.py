"""AnnData in, AnnData out: soft clusters of cells, beside Leiden on the same graph.

Run it as ``python examples/06_single_cell.py [folder]``; it needs anndata, and writes cells.zarr, and cells.png if
matplotlib is installed. Cells are those of ``$SNMF_DATA/cells.h5ad``, an AnnData with ``obsm["X_pca"]``; without
that file a stand-in is drawn: six types of cells, and cells on the way from one type to another.
"""

import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

import snmf_dist

CELLS, TYPES, GENES = 2400, 6, 300
COLORS = np.array(["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000000"])


def load_cells(n: int = CELLS) -> Any:
    """An AnnData with ``obsm["X_pca"]``."""
    import anndata

    path = Path(os.environ.get("SNMF_DATA", "data")) / "cells.h5ad"
    if path.exists():
        return anndata.read_h5ad(path)
    print(f"{path} is not there: {n} made-up cells stand in; set SNMF_DATA to its folder")
    return draw_cells(n)


def draw_cells(n: int, seed: int = 0) -> Any:
    """Counts of cells of six types of unequal size; one cell in six lies on the way from type 0 to type 1."""
    import anndata
    import pandas

    random = np.random.default_rng(seed)
    types = random.choice(TYPES, n, p=[0.3, 0.25, 0.2, 0.12, 0.08, 0.05])
    programs = random.gamma(2.0, 0.5, GENES) * random.lognormal(0, 0.35, (TYPES, GENES))
    share = np.eye(TYPES)[types]
    between = random.random(n) < 1 / 6
    share[between] = 0
    share[between, 0] = way = random.uniform(0.15, 0.85, between.sum())
    share[between, 1] = 1 - way
    depth = random.lognormal(0, 0.4, (n, 1))
    counts = random.poisson(depth * (share @ programs) * random.gamma(2, 0.5, (n, GENES)))
    logs = np.log1p(1e3 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
    names = [f"{'ACGT'[i % 4]}{'ACGT'[i // 4 % 4]}-{i:05d}" for i in range(n)]
    kind = np.where(between, "between 0 and 1", np.char.add("type ", types.astype(str)))
    return anndata.AnnData(
        X=sparse.csr_matrix(counts.astype(np.float32)),
        obs=pandas.DataFrame({"type": pandas.Categorical(kind)}, index=names),
        obsm={"X_pca": PCA(20, random_state=0).fit_transform(logs).astype(np.float32)},
    )


def leiden(graph: snmf_dist.GraphStore) -> np.ndarray | None:
    """Leiden by igraph on the same A, in the order of the cells; None where igraph is not installed."""
    try:
        import igraph
    except ImportError:
        print("Leiden is left out: igraph is not installed")
        return None
    A = sparse.triu(graph.read_rows(0, graph.n), k=1).tocoo()
    G = igraph.Graph(n=graph.n, edges=np.column_stack([A.row, A.col]).tolist())
    found = G.community_leiden("modularity", weights=A.data.tolist(), n_iterations=-1).membership
    labels = np.empty(graph.n, dtype=int)
    labels[graph.order] = found
    return labels


def draw(points: np.ndarray, solution: snmf_dist.Solution, other: np.ndarray | None, path: Path) -> None:
    """The cells on a map: their labels, how sure those are, and Leiden's."""
    from matplotlib.figure import Figure

    points = TSNE(init="pca", random_state=0).fit_transform(points)
    L = np.asarray(solution.membership.compute())
    sure = L.max(axis=1) / np.maximum(L.sum(axis=1), 1e-12)
    figure = Figure(figsize=(11, 3.7), layout="constrained", facecolor="white")
    panels = figure.subplots(1, 2 if other is None else 3)
    colors = np.where(solution.labels < 0, "#bbbbbb", COLORS[solution.labels % len(COLORS)])
    panels[0].scatter(*points.T, s=5, c=colors, linewidths=0)
    panels[0].set_title(f"SNMF: {solution.k} clusters")
    drawn = panels[1].scatter(*points.T, s=5, c=sure, cmap="cividis_r", linewidths=0, vmin=0.5, vmax=1)
    panels[1].set_title("share of the first cluster")
    figure.colorbar(drawn, ax=panels[1])
    if other is not None:
        panels[2].scatter(*points.T, s=5, c=COLORS[other % len(COLORS)], linewidths=0)
        panels[2].set_title(f"Leiden: {other.max() + 1} clusters")
    for axes in panels:
        axes.set(xticks=[], yticks=[])
        for side in axes.spines.values():
            side.set_color("#cccccc")
    figure.savefig(path, dpi=80)


def main(folder: Path, n: int = CELLS, k: int = TYPES) -> snmf_dist.Solution:
    """AnnData to AnnData."""
    folder.mkdir(parents=True, exist_ok=True)
    import anndata

    adata = load_cells(n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # AnnData announces its next format
        adata.write_zarr(folder / "cells.zarr")

    # The graph takes the coordinates in obsm, and the names of the cells as ids. An .h5ad is read in the same way.
    graph = snmf_dist.build_graph(folder / "cells.zarr", folder / "near.zarr", key="X_pca", overwrite=True)
    solution = snmf_dist.fit(graph, k)

    # Labels and memberships go into the store that is there; the counts are not touched.
    solution.export(folder / "cells.zarr")
    again = anndata.read_zarr(folder / "cells.zarr")
    print(again)
    print(again.obs.groupby(["snmf"], observed=True)["snmf_strength"].describe()[["count", "mean", "min"]])

    other = leiden(graph)
    if "type" in again.obs:
        whole = ~again.obs["type"].astype(str).str.startswith("between").to_numpy()
        known = again.obs["type"].astype(str).to_numpy()[whole]
        print("SNMF:  ", snmf_dist.score(solution.labels[whole], known))
        if other is not None:
            print("Leiden:", snmf_dist.score(other[whole], known))
        strength = again.obs["snmf_strength"].to_numpy()
        print(f"mean strength: {strength[whole].mean():.2f} in a type, {strength[~whole].mean():.2f} between two")
    try:
        draw(np.asarray(again.obsm["X_pca"]), solution, other, folder / "cells.png")
    except ImportError:
        print("pictures need matplotlib; install snmf-dist[report]")
    return solution


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
