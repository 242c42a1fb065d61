"""Run a grid of settings on one graph, look at the table, and take the best result.

Run it as ``python examples/03_many_runs.py [folder]``; it writes graph.zarr and the folder study there. Stop it at
any time, and run it again: runs that are done stay.
"""

import runpy
import sys
import tempfile
from pathlib import Path

import snmf_dist

NODES, GROUPS = 3000, 6
make_graph = runpy.run_path(str(Path(__file__).with_name("01_cluster_a_graph.py")))["make_graph"]


def main(folder: Path, n: int = NODES) -> snmf_dist.Study:
    """Import, run the grid, print."""
    folder.mkdir(parents=True, exist_ok=True)
    edges, group = make_graph(n, GROUPS)
    graph = snmf_dist.import_graph(edges, folder / "graph.zarr", symmetrize="max", overwrite=True)

    study = snmf_dist.fit_many(
        graph,
        ks=range(4, 9),
        seeds=2,
        inits=["kmeans", "random"],
        out=folder / "study",
        labels=group,
        progress=lambda study: print(study.summary()),
    )

    print(" k  start   captured share  modularity  accuracy  status")
    for row in study.rows:
        share = "-" if row["captured_share"] is None else f"{row['captured_share']:.4f}"
        modularity = "-" if row["modularity"] is None else f"{row['modularity']:.4f}"
        found = f"{share:14}  {modularity:10}  {row['ac']:8.3f}  {row['status']}"
        print(f"{row['param_k']:2}  {row['param_init']:6}  {found}")
    print("the highest modularity:", study.best(by="modularity"))
    print("the best that 6 clusters captured:", study.best(k=GROUPS))
    return study


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
