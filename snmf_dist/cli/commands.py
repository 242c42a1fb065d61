"""snmf-dist: parse, call the library, print. Exit codes: 0 done, 1 not converged, 2 bad input, 3 failed."""

import math
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

import snmf_dist
from snmf_dist import cluster, storage
from snmf_dist.cli import demo
from snmf_dist.cli.progress import iterations, stages
from snmf_dist.errors import NoRoom, NotOurStore, ResultNotSaved, SnmfError, StoreExists, WorkLost
from snmf_dist.graph.build import is_points
from snmf_dist.listeners import JsonLines
from snmf_dist.result.scores import read_labels
from snmf_dist.solve.runs import INITS

NOT_CONVERGED, BAD_INPUT, FAILED = 1, 2, 3


class _Commands(click.Group):
    """Turns what the library raises and warns of into lines for the terminal, and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that we clean up
        with _plain_warnings():
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except (WorkLost, ResultNotSaved, NoRoom) as error:
                code, text = FAILED, str(error)
            except SnmfError as error:
                code, text = BAD_INPUT, str(error)
            except OSError as error:
                code, text = FAILED, f"{error.filename}: {error.strerror}" if error.filename else str(error)
            except KeyboardInterrupt:
                code, text = 128 + signal.SIGINT, "interrupted; no result was written"
            except Exception as error:
                traceback.print_exc()
                code, text = FAILED, f"unexpected {type(error).__name__}; this is a mistake of snmf_dist"
        click.echo(f"error: {text}", err=True)
        raise click.exceptions.Exit(code)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="snmf-dist")
def main() -> None:
    """Cluster graphs that do not fit: A ≈ LLᵀ, L ≥ 0, on Dask and Zarr.

    \b
    Try it:          snmf-dist demo
    Your own points: snmf-dist graph points.npy graph.zarr
    Your own graph:  snmf-dist import edges.csv graph.zarr --symmetrize max
    Then:            snmf-dist fit graph.zarr -k 20 --out result.zarr
                     snmf-dist info result.zarr
    Will it fit?     snmf-dist plan graph.zarr -k 20 --memory 4GiB

    Exit codes: 0 done; 1 not converged (the result is still written); 2 usage or bad input; 3 the work
    failed (disk full, workers lost).
    """


@main.command("import")
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
@click.option("--self-loops", type=click.Choice(["keep", "drop"]), default="keep", show_default=True)
@click.option("--block-rows", type=int, help="Rows a block.  [default: about 2 million entries]")
@click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True)
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
@click.option("--overwrite", is_flag=True, help="Replace the graph store at GRAPH.")
def import_(
    source: str,
    graph: str,
    normalize: str,
    reorder: bool,
    columns: str | None,
    nodes: int | None,
    **options: Any,
) -> None:
    """Write SOURCE as the graph store GRAPH.

    SOURCE is a SciPy .npz, a Matrix Market .mtx, an edge list (.csv .tsv .txt .edges .parquet: source,
    target and optionally weight), an AnnData Zarr store, or another graph store to cut into other blocks.
    Edge lists may be larger than memory.

    \b
    Example: snmf-dist import edges.tsv graph.zarr --symmetrize max --first-id 1
    """
    console = _console()
    with stages(console) as progress:
        store = snmf_dist.import_graph(
            source,
            graph,
            normalize=None if normalize == "none" else normalize,
            reorder="auto" if reorder else False,
            columns=columns.split(",") if columns else None,
            n=nodes,
            progress=progress,
            **options,
        )
    _print_facts(console, store.info())


@main.command("graph")
@click.argument("points")
@click.argument("graph")
@click.option("--neighbors", type=int, help="Neighbours of a point, q.  [default: log2(n) + 1, rounded down]")
@click.option("--scale-neighbor", type=int, default=7, show_default=True, help="The one that sets the scale.")
@click.option("--metric", type=click.Choice(["euclidean", "cosine"]), default="euclidean", show_default=True)
@click.option("--pca", type=int, help="Project on so many principal components first.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--block-rows", type=int, help="Rows a block.  [default: about 2 million entries]")
@click.option("--memory-limit", help="Bytes a process may use, as 4GiB.  [default: half of the memory]")
@click.option(
    "--replication",
    type=float,
    default=1.6,
    show_default=True,
    help="Cells a point is put in, on the mean: more is slower and more accurate.",
)
@click.option("--exact/--approximate", default=None, help="Compare all pairs, or never.  [default: up to 50,000]")
@click.option("--connect", is_flag=True, help="Join small components to their nearest points.")
@click.option("--columns", help="Columns of a Parquet file, with commas between.")
@click.option("--scheduler", metavar="ADDRESS", help="Run on this Dask cluster.")
@click.option("--no-resume", is_flag=True, help="Start over instead of going on from a killed build.")
@click.option("--overwrite", is_flag=True, help="Replace the graph store at GRAPH.")
def graph_(
    points: str, graph: str, columns: str | None, scheduler: str | None, no_resume: bool, **options: Any
) -> None:
    """Build the similarity graph of POINTS as the graph store GRAPH.

    POINTS is a 2-D Zarr array (a path or URL), .npy, SciPy CSR .npz or .parquet; it may be larger than
    memory. A build that is killed goes on where it was when the same command is given again.

    \b
    Example: snmf-dist graph embeddings.npy graph.zarr --metric cosine --memory-limit 4GiB
    """
    console = _console()
    with cluster.connect(scheduler) if scheduler else nullcontext(), stages(console) as progress:
        store = snmf_dist.build_graph(
            points,
            graph,
            columns=columns.split(",") if columns else None,
            resume=not no_resume,
            progress=progress,
            **options,
        )
    _print_facts(console, store.info())


@main.command()
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
    console = _console()
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
    with cluster.connect(scheduler) if scheduler else nullcontext():
        solution = snmf_dist.fit(store, out=out, listeners=listeners, **settings)
    _print_solution(console, solution, known)
    console.print(f"result: {out}")
    if not solution.status.converged:
        raise click.exceptions.Exit(NOT_CONVERGED)


@main.command("plan")
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


@main.command()
@click.argument("path")
def info(path: str) -> None:
    """Describe the graph store or result at PATH."""
    console = _console()
    group = storage.open_group(storage.normal_path(path))
    if storage.kind_of(group) == "result":
        solution = snmf_dist.open_solution(path)
        _print_solution(console, solution, None)
        provenance = {k: v for k, v in solution.provenance.items() if v != []}
        _print_facts(console, {**solution.settings, **provenance})
    else:
        _print_facts(console, snmf_dist.open_graph(path).info())


@main.command()
@click.argument("path")
@click.option("--quick", is_flag=True, help="Only sizes and the manifest; do not read all entries.")
def check(path: str, quick: bool) -> None:
    """Check that the graph store or result at PATH is whole and as it was written."""
    console = _console()
    group = storage.open_group(storage.normal_path(path))
    if storage.kind_of(group) == "result":
        solution = snmf_dist.open_solution(path)
        if not quick:
            solution.validate()
    else:
        with stages(console) as progress:
            snmf_dist.open_graph(path).validate(deep=not quick, progress=progress)
    console.print(f"{path}: ok ({'quick' if quick else 'every entry read'})")


@main.command("demo")
@click.option("--out", default="snmf-demo", show_default=True, help="Folder for graph, result and picture.")
@click.option("--points", type=int, default=2000, show_default=True, help="How many points to draw.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the points.")
def demo_(out: str, points: int, seed: int) -> None:
    """Cluster points that k-means cannot separate, from nothing to a picture."""
    from sklearn.cluster import KMeans

    from snmf_dist.result.report import save_picture

    console = _console()
    if os.path.exists(out) and not os.path.isdir(out):
        raise StoreExists(f"{out}: is a file; choose a folder")
    os.makedirs(out, exist_ok=True)
    graph_path, result_path, picture = (
        os.path.join(out, name) for name in ("demo-graph.zarr", "demo-result.zarr", "clusters.png")
    )
    drawn = demo.make_points(points, seed=seed)
    console.print(f"{points} points in {demo.CLUSTERS} clusters; their neighbour graph:")
    graph = snmf_dist.build_graph(
        drawn.X,
        graph_path,
        neighbors=demo.NEIGHBORS,
        scale_neighbor=demo.SCALE_NEIGHBOR,
        overwrite=True,
        resume=False,
    )
    console.print(f"  {graph.n} rows, {graph.nnz} entries, in {graph_path}")

    console.print("its clusters:")
    found = snmf_dist.fit(graph, demo.CLUSTERS, out=result_path, overwrite=True, listeners=[iterations(console)])
    save_picture(picture, found, drawn.X)
    _print_solution(console, found, drawn.y)
    rival = KMeans(demo.CLUSTERS, n_init=10, random_state=0).fit_predict(drawn.X)
    accuracy = snmf_dist.score(rival, drawn.y).accuracy
    console.print(f"k-means on the same points: accuracy {accuracy:.3f}")
    console.print(f"result: {result_path}\npicture: {picture}")


def _console() -> Console:
    """Lines as they are: not wrapped at the width of a terminal, numbers not coloured."""
    return Console(soft_wrap=True, highlight=False)


def _print_solution(console: Console, solution: snmf_dist.Solution, truth: Any) -> None:
    facts: dict[str, Any] = {
        "status": f"{solution.status.name}: {solution.status.value}",
        "iterations": solution.n_iter,
        "products with A": solution.n_products,
        "captured energy": f"{solution.captured:.6g}"
        + ("" if math.isnan(solution.bound) else f" ({solution.captured / solution.bound:.4%} of the bound)"),
        "objective": f"{solution.objective:.6g}",
        "KKT distance": f"{solution.kkt:.2e}",
        "cluster sizes": " ".join(map(str, sorted(solution.sizes.tolist(), reverse=True))),
        "rows in no cluster": solution.n_unassigned,
    }
    if len(solution.runs) > 1:
        facts["runs, captured"] = " ".join(f"{run['captured']:.6g}" for run in solution.runs)
    if len(solution.eigengap):
        facts["largest eigengap"] = f"{solution.eigengap.max():.3g} after {solution.eigengap.argmax() + 1}"
    if truth is not None:
        facts |= _scores(solution.labels, truth)
        if solution.spectral_labels is not None:
            facts |= _scores(solution.spectral_labels, truth, "spectral clustering: ")
    _print_facts(console, facts)


def _scores(labels: Any, truth: Any, who: str = "") -> dict[str, str]:
    return {who + name: f"{value:.4f}" for name, value in snmf_dist.score(labels, truth)._asdict().items()}


def _print_facts(console: Console, facts: dict[str, Any]) -> None:
    for name, value in facts.items():
        console.print(f"[bold]{name:23}[/] {escape(str(value))}")


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show our warnings as a line each, without the place in the code."""

    def show(message: Warning | str, *rest: Any) -> None:
        click.echo(f"warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        yield
