"""How many clusters does a graph have? Screen every K, fit the best few, and look at the picture.

Run it as ``python examples/04_choose_k.py [folder]``; it writes graph.zarr and the folder study there. Stop it at
any time, and run it again: fits that are done stay.
"""

import runpy
import sys
import tempfile
from pathlib import Path

import snmf_dist

NODES, GROUPS = 3000, 6
make_graph = runpy.run_path(str(Path(__file__).with_name("01_cluster_a_graph.py")))["make_graph"]


def main(folder: Path, n: int = NODES) -> snmf_dist.KStudy:
    """Import, choose, print."""
    folder.mkdir(parents=True, exist_ok=True)
    edges, group = make_graph(n, GROUPS)
    graph = snmf_dist.import_graph(edges, folder / "graph.zarr", symmetrize="max", overwrite=True)

    found = snmf_dist.choose_k(graph, range(2, 16), seeds=4, held_out=0.1, out=folder / "study")

    print(" K  separation  eigengap  modularity  held out")
    for row in found.rows:
        numbers = f"{row['eigengap']:8.4f}  {row['modularity']:10.4f}  {row['held_out']:8.4f}"
        print(f"{row['k']:2}  {row['separation']:10.3f}  {numbers}")
    print(found.reason)
    print("against the groups:", snmf_dist.score(found.labels[found.k or GROUPS], group))
    for k, common in found.consensus.items():
        print(f"K = {k}: {(common.row_stability == 1).mean():.0%} of the rows are in one cluster in all fits")
    try:
        found.save_picture(folder / "study" / "choice.png")
    except snmf_dist.SnmfError as error:  # matplotlib is not installed
        print(error)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
