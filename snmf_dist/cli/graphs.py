"""The commands that write a graph store: `import` from edges, `graph` from points."""

from contextlib import nullcontext
from typing import Any

import click

import snmf_dist
from snmf_dist.cli.output import new_console, number_or_auto, print_facts
from snmf_dist.cli.progress import stages
from snmf_dist.engine.client import connect


@click.command("import")
@click.argument("source")
@click.argument("graph")
@click.option(
    "--normalize",
    type=click.Choice(["ncut", "none"]),
    default="ncut",
    show_default=True,
    help="ncut: divide by the roots of the degrees, as the paper does; none: keep weights.",
)
@click.option(
    "--symmetrize",
    type=click.Choice(["max", "mean"]),
    help="Make A symmetric: max for undirected lists that hold an edge once. Without it an "
    "asymmetric A is refused.",
)
@click.option(
    "--self-loops",
    type=click.Choice(["auto", "keep", "drop"]),
    default="auto",
    show_default=True,
    help="What to do with the diagonal; auto drops it for ncut.",
)
@click.option(
    "--tau",
    metavar="NUMBER|auto",
    default="auto",
    show_default=True,
    help="Added to each degree before A is normalised; auto: a quarter of the mean degree where many nodes have "
    "less, else 0, as the paper has it.",
)
@click.option("--block-rows", type=int, help="Number of rows of a block.  [default: about 2 million entries]")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="Type of the stored entries, and of the solver's arrays.",
)
@click.option(
    "--reorder/--no-reorder",
    default=True,
    show_default=True,
    help="Store the rows in an order that keeps neighbours together, if that is clearly faster; results come "
    "back in the order of SOURCE.",
)
@click.option("--key", help="Which obsp matrix of an AnnData store.")
@click.option("--columns", help="Names of the source, target and weight columns, with commas between.")
@click.option("--nodes", type=int, help="Number of nodes.  [default: the largest id decides]")
@click.option("--first-id", type=int, default=0, show_default=True, help="1 for lists that count from one.")
@click.option(
    "--ids",
    type=click.Choice(["auto", "rows", "numbers", "text"]),
    default="auto",
    show_default=True,
    help="What node ids are: row numbers, whole numbers with gaps, or text; the last two are kept with the graph.",
)
@click.option("--memory-limit", metavar="BYTES", help="Bytes to use, as 1GiB.  [default: half of the memory]")
@click.option("--scheduler", metavar="ADDRESS", help="Run on this Dask cluster.")
@click.option("--overwrite", is_flag=True, help="Replace the graph store at GRAPH.")
def import_(
    source: str,
    graph: str,
    normalize: str,
    tau: str,
    reorder: bool,
    columns: str | None,
    nodes: int | None,
    scheduler: str | None,
    **options: Any,
) -> None:
    """Write SOURCE as the graph store GRAPH.

    SOURCE is an edge list (.csv .tsv .txt .edges .parquet .arrow: source, target and optionally weight), a
    folder or quoted pattern of such files, METIS (.graph), GraphML, a SciPy .npz, Matrix Market .mtx, AnnData
    (.h5ad or Zarr), or another graph store to cut into other blocks. Edge lists may be larger than memory.

    \b
    Example: snmf-dist import edges.tsv graph.zarr --symmetrize max --first-id 1
    """
    console = new_console()
    with connect(scheduler) if scheduler else nullcontext(), stages(console) as progress:
        store = snmf_dist.import_graph(
            source,
            graph,
            normalize=None if normalize == "none" else normalize,
            tau=number_or_auto(tau, "--tau"),
            reorder="auto" if reorder else False,
            columns=columns.split(",") if columns else None,
            n=nodes,
            progress=progress,
            **options,
        )
    print_facts(console, store.info())


@click.command("graph")
@click.argument("points")
@click.argument("graph")
@click.option("--neighbors", type=int, help="Neighbours of a point, q.  [default: log2(n) + 1, rounded down]")
@click.option(
    "--scale-neighbor",
    type=int,
    default=7,
    show_default=True,
    help="The neighbour whose distance is the scale of a point.",
)
@click.option(
    "--metric",
    type=click.Choice(["euclidean", "cosine"]),
    default="euclidean",
    show_default=True,
    help="Distance between points.",
)
@click.option("--pca", type=int, help="Number of principal components to project on first.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random number generator.")
@click.option("--block-rows", type=int, help="Number of rows of a block.  [default: about 2 million entries]")
@click.option(
    "--memory-limit",
    metavar="BYTES",
    help="Bytes a process may use, as 4GiB.  [default: half of the memory, or the workers' own limit]",
)
@click.option(
    "--replication",
    type=float,
    default=1.6,
    show_default=True,
    help="Mean number of cells a point is put in: more is slower and more accurate.",
)
@click.option(
    "--exact/--approximate", default=None, help="Compare all pairs of points, or do not.  [default: up to 50,000]"
)
@click.option("--connect", is_flag=True, help="Join small components to their nearest points.")
@click.option("--columns", help="Columns of a Parquet or Arrow file, with commas between.")
@click.option("--key", help="Which obsm of AnnData, or X; in other HDF5 the name of a dataset.")
@click.option(
    "--ids", metavar="COLUMN", help="Column of a Parquet or Arrow file with your ids, kept with the graph."
)
@click.option("--scheduler", metavar="ADDRESS", help="Run on this Dask cluster.")
@click.option("--no-resume", is_flag=True, help="Start over instead of continuing an interrupted build.")
@click.option("--overwrite", is_flag=True, help="Replace the graph store at GRAPH.")
def graph_(
    points: str, graph: str, columns: str | None, scheduler: str | None, no_resume: bool, **options: Any
) -> None:
    """Build the similarity graph of POINTS as the graph store GRAPH.

    POINTS is a 2-D Zarr array (a path or URL), .npy, SciPy CSR .npz, .parquet, .arrow, AnnData (.h5ad or
    Zarr), other HDF5, .fbin or .u8bin; it may be larger than memory. The same command, given again, continues
    a build that was interrupted.

    \b
    Example: snmf-dist graph embeddings.npy graph.zarr --metric cosine --memory-limit 4GiB
    """
    console = new_console()
    with connect(scheduler) if scheduler else nullcontext(), stages(console) as progress:
        store = snmf_dist.build_graph(
            points,
            graph,
            columns=columns.split(",") if columns else None,
            resume=not no_resume,
            progress=progress,
            **options,
        )
    print_facts(console, store.info())
