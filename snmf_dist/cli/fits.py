"""The commands that cluster a graph: `fit`, and `plan`, which says what memory that takes."""

from contextlib import nullcontext
from typing import Any

import click

import snmf_dist
from snmf_dist import storage
from snmf_dist.cli.output import new_console, print_solution
from snmf_dist.cli.progress import iterations
from snmf_dist.engine.client import connect
from snmf_dist.errors import NotOurStore
from snmf_dist.graph.build import is_points
from snmf_dist.listeners import JsonLines
from snmf_dist.result.scores import read_labels
from snmf_dist.solve.pipeline import INITS

NOT_CONVERGED = 1  # exit code


@click.command()
@click.argument("graph")
@click.option("-k", "--clusters", "k", type=int, required=True, help="Number of clusters.")
@click.option("--out", required=True, help="Where to write the result, a path or URL.")
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Run on this Dask cluster, as tcp://host:8786.  [default: threads of this process]",
)
@click.option(
    "--solver",
    type=click.Choice(["admm", "apg", "hals"]),
    default="admm",
    show_default=True,
    help="The paper's two algorithms, or column sweeps.",
)
@click.option(
    "--init",
    metavar="START",
    default="kmeans",
    show_default=True,
    help="Where to begin: kmeans for the best labels, spectral for the best fit, random as in the paper, or the "
    "path of a result to go on from.",
)
@click.option(
    "--rho", metavar="NUMBER|auto", default="auto", show_default=True, help="Penalty; the paper has 0.1 for ADMM."
)
@click.option(
    "--stop",
    type=click.Choice(["auto", "kkt", "paper"]),
    default="auto",
    show_default=True,
    help="auto: when the clusters have settled; kkt: at a local optimum; paper: at a small change.",
)
@click.option("--tol", type=float, help="Of the stopping rule.  [default: 1e-5, or 1e-4 for kkt]")
@click.option("--max-iter", type=int, default=1000, show_default=True)
@click.option("--n-init", type=int, default=1, show_default=True, help="Runs side by side; the best is kept.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is random.")
@click.option("--save-state", is_flag=True, help="Keep what is needed to go on exactly; a larger result.")
@click.option("--block-rows", type=int, help="Rows a block.  [default: as the plan says]")
@click.option(
    "--memory-limit",
    metavar="BYTES",
    help="What a process may use, as 4GiB; what does not fit is streamed from disk.  [default: half of the "
    "memory, or the workers' own limit]",
)
@click.option(
    "--evaluate-every",
    type=int,
    default=10,
    show_default=True,
    help="Take the objective every so many iterations; each costs half an iteration.",
)
@click.option(
    "--labels",
    "truth",
    metavar="FILE",
    help="Known labels (.npy, .npz with y, or a line each): print how well they are met.",
)
@click.option("--json-lines", metavar="FILE", help="Write each iteration as a line of JSON.")
@click.option("--overwrite", is_flag=True, help="Replace the result at --out.")
def fit(
    graph: str, out: str, scheduler: str | None, truth: str | None, json_lines: str | None, **settings: Any
) -> None:
    """Cluster the graph store GRAPH into K soft clusters.

    \b
    Examples: snmf-dist fit graph.zarr -k 20 --out result.zarr
              snmf-dist fit graph.zarr -k 20 --out result.zarr --scheduler tcp://127.0.0.1:8786
              snmf-dist fit graph.zarr -k 20 --out result.zarr --memory-limit 1GiB
              snmf-dist fit graph.zarr -k 20 --out paper.zarr --init random --rho 0.1 --stop paper
    """
    console = new_console()
    if settings["rho"] != "auto":
        try:
            settings["rho"] = float(settings["rho"])
        except ValueError:
            raise click.BadParameter(
                f"{settings['rho']!r} is neither a number nor auto", param_hint="--rho"
            ) from None
    if is_points(storage.normal_path(graph)):
        raise NotOurStore(f"{graph}: holds points; build their graph first with `snmf-dist graph`")
    store = snmf_dist.open_graph(graph)
    known = read_labels(truth, n=store.n) if truth else None
    listeners = [iterations(console), *([JsonLines(json_lines)] if json_lines else [])]
    with connect(scheduler) if scheduler else nullcontext():
        solution = snmf_dist.fit(store, out=out, listeners=listeners, **settings)
    print_solution(console, solution, known)
    console.print(f"result: {out}")
    if not solution.status.converged:
        raise click.exceptions.Exit(NOT_CONVERGED)


@click.command("plan")
@click.argument("graph")
@click.option("-k", "--clusters", "k", type=int, required=True, help="Number of clusters.")
@click.option("--workers", type=int, help="Worker processes of a cluster.  [default: none, this process]")
@click.option("--threads", type=int, help="Threads of a process.  [default: the cores of this machine]")
@click.option(
    "--memory",
    "memory_limit",
    metavar="BYTES",
    help="What a process may use, as 4GiB.  [default: half of the memory]",
)
@click.option("--solver", type=click.Choice(["admm", "apg", "hals"]), default="admm", show_default=True)
@click.option("--init", type=click.Choice(INITS), default="kmeans", show_default=True)
@click.option("--n-init", type=int, default=1, show_default=True, help="Runs side by side.")
@click.option("--block-rows", type=int, help="Rows a block.  [default: as fit]")
def plan_(graph: str, k: int, **options: Any) -> None:
    """Say how GRAPH would be clustered into K clusters, and what memory that takes; nothing runs.

    Exit code 2 if there is no way to keep within the memory.

    \b
    Example: snmf-dist plan graph.zarr -k 20 --workers 8 --threads 4 --memory 16GiB
    """
    for line in snmf_dist.plan_fit(graph, k, **options).lines():
        click.echo(line)
