"""The commands that cluster a graph: `fit`, and `plan`, which says what memory that takes."""

import os
import shlex
import shutil
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import click

import snmf_dist
from snmf_dist import storage
from snmf_dist.arguments import find_graph
from snmf_dist.cli.output import new_console, number_or_auto, print_solution
from snmf_dist.cli.planting import Count
from snmf_dist.cli.progress import iterations, stages
from snmf_dist.engine.client import connect
from snmf_dist.engine.machine import temporary_folder
from snmf_dist.errors import ResultNotSaved
from snmf_dist.graph.build import is_points
from snmf_dist.listeners import JsonLines
from snmf_dist.result.files import RESULT
from snmf_dist.result.scores import read_labels
from snmf_dist.scaling.cost import plan_sizes
from snmf_dist.solve.pipeline import INITS
from snmf_dist.solve.solvers import SOLVERS

NOT_CONVERGED = 1  # exit code
NO_MODEL = "time         not known; measure with snmf-dist scale, and give its model.json as --model"


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
    type=click.Choice(list(SOLVERS)),
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
    "path of a result to resume.",
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
@click.option("--tol", type=float, help="Tolerance of the stopping rule.  [default: 1e-5, or 1e-4 for kkt]")
@click.option("--max-iter", type=int, default=1000, show_default=True, help="Maximum number of iterations.")
@click.option("--n-init", type=int, default=1, show_default=True, help="Runs side by side; the best is kept.")
@click.option(
    "--specks",
    type=click.Choice(["drop", "own", "join"]),
    default="drop",
    show_default=True,
    help="Small parts that no edge joins to the rest: label -1, clusters of their own, or the label of the "
    "nearest row.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random number generator.")
@click.option(
    "--save-state",
    is_flag=True,
    help="Save the solver's state too, to resume the run exactly later; a larger result.",
)
@click.option("--block-rows", type=int, help="Number of rows of a block.  [default: as the plan says]")
@click.option(
    "--memory-limit",
    metavar="BYTES",
    help="Bytes a process may use, as 4GiB; what does not fit is streamed from disk.  [default: half of the "
    "memory, or the workers' own limit]",
)
@click.option(
    "--evaluate-every",
    type=int,
    default=10,
    show_default=True,
    help="Iterations from one evaluation of the objective to the next; an evaluation costs half an iteration.",
)
@click.option(
    "--labels",
    "truth",
    metavar="FILE",
    help="Known labels (.npy, .npz with y, a line each, or .csv, .tsv, .parquet with id and label): print how "
    "well they are met.",
)
@click.option(
    "--graph-setting",
    "graph_settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="If GRAPH holds points: a setting of build_graph, as metric=cosine or neighbors=15. May be repeated.",
)
@click.option(
    "--json-lines",
    metavar="FILE",
    help="Write each iteration as a line of JSON; - for standard output, and all else goes to standard error.",
)
@click.option("--overwrite", is_flag=True, help="Replace the result at --out.")
@click.option(
    "--resume/--no-resume",
    default=True,
    show_default=True,
    help="Continue an unfinished run from its checkpoint in OUT.checkpoint, or remove that and start over.",
)
@click.option(
    "--checkpoint-every",
    metavar="ITERATIONS|auto|none",
    default="auto",
    show_default=True,
    help="How often to write a checkpoint; auto: at most 3 % of the time is spent on them.",
)
@click.option(
    "--time-limit",
    type=float,
    metavar="SECONDS",
    help="End after these seconds with a checkpoint; the same command continues.",
)
def fit(
    graph: str,
    out: str,
    scheduler: str | None,
    truth: str | None,
    graph_settings: tuple[str, ...],
    json_lines: str | None,
    **settings: Any,
) -> None:
    """Cluster the graph store GRAPH into K soft clusters.

    GRAPH may also be the path of points that `snmf-dist graph` reads. Their similarity graph is then built beside
    them as <points>.graph.zarr, and reused when the same points are given with the same settings.

    \b
    Examples: snmf-dist fit graph.zarr -k 20 --out result.zarr
              snmf-dist fit graph.zarr -k 20 --out result.zarr --scheduler tcp://127.0.0.1:8786
              snmf-dist fit graph.zarr -k 20 --out result.zarr --memory-limit 1GiB
              snmf-dist fit graph.zarr -k 20 --out paper.zarr --init random --rho 0.1 --stop paper
              snmf-dist fit points.npy -k 20 --out result.zarr --graph-setting metric=cosine
    """
    console = new_console(stderr=json_lines == "-")
    settings["rho"] = number_or_auto(settings["rho"], "--rho")
    settings["checkpoint_every"] = _checkpoint_every(settings["checkpoint_every"])
    given = dict(_graph_setting(text) for text in graph_settings)
    storage.check_free(storage.normal_path(out), RESULT, overwrite=settings["overwrite"])
    listeners = [iterations(console)]
    if json_lines:
        listeners.append(JsonLines(sys.stdout if json_lines == "-" else json_lines))
    with connect(scheduler) if scheduler else nullcontext():
        if is_points(storage.normal_path(graph)):
            with stages(console) as progress:
                store = find_graph(graph, {**given, "progress": progress})
        else:
            store = find_graph(graph, given or None)
        known = read_labels(truth, n=store.n, ids=store.ids) if truth else None
        try:
            solution = snmf_dist.fit(store, out=out, listeners=listeners, **settings)
        except ResultNotSaved as error:
            raise _rescue(error, out, save_state=settings["save_state"]) from error
    print_solution(console, solution, known)
    if solution.status is snmf_dist.Status.OUT_OF_TIME:
        console.print(f"no result yet: the same command continues from {out}.checkpoint", markup=False)
    else:
        console.print(f"result: {out}", markup=False)
    if not solution.status.converged:
        raise click.exceptions.Exit(NOT_CONVERGED)


def _rescue(error: ResultNotSaved, out: str, *, save_state: bool) -> ResultNotSaved:
    """Save a result elsewhere that could not be written to `out`, and return the error that says where it is."""
    solution: Any = error.solution
    if solution.provenance["place"] == "cluster":  # workers on other machines do not see these folders
        solution = replace(solution, membership=solution.membership.compute(), state=None)
    name = os.path.basename(out.rstrip("/"))
    for place in (temporary_folder(), os.path.expanduser("~"), os.getcwd()):
        try:
            folder = tempfile.mkdtemp(prefix="snmf-dist-result-", dir=place)
        except OSError:
            continue
        try:
            kept = os.path.join(folder, name)
            solution.save(kept, save_state=save_state and solution.state is not None)
        except Exception:  # as full as the first place, most likely
            shutil.rmtree(folder, ignore_errors=True)
            continue
        why = str(error).partition("; the run is done")[0]
        fetch = f"mv {shlex.quote(kept)} {shlex.quote(out)}"
        if storage.is_url(out):
            fetch = f'python -c "import snmf_dist as s; s.open_solution({kept!r}).save({out!r})"'
        return ResultNotSaved(f"{why}; it is kept, as {kept}. Fetch it with: {fetch}", solution)
    return ResultNotSaved(
        f"{error}; nor could it be kept in {temporary_folder()}, the home folder or the working one; free some "
        "room, and run again"
    )


def _checkpoint_every(text: str) -> int | str | None:
    """The value of --checkpoint-every."""
    if text in ("auto", "none"):
        return None if text == "none" else text
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither a whole number nor auto nor none", param_hint="--checkpoint-every"
        ) from None


def _graph_setting(text: str) -> tuple[str, Any]:
    """Name and value of a --graph-setting: a number, true, false, none, or else text."""
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not name or name == "progress":
        raise click.BadParameter(
            f"{text!r} is not a setting of build_graph; expected NAME=VALUE, as metric=cosine",
            param_hint="--graph-setting",
        )
    if name == "columns":
        return name, value.split(",")
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return name, words[value.lower()]
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


@click.command("plan")
@click.argument("graph", required=False)
@click.option("-k", "--clusters", "k", type=int, required=True, help="Number of clusters.")
@click.option("--rows", type=Count(), help="Instead of GRAPH: rows of a graph that need not exist, as 1e9.")
@click.option("--entries", type=Count(), help="With --rows: its stored entries, twice its edges, as 3e10.")
@click.option(
    "--model",
    metavar="FILE",
    help="model.json of snmf-dist scale, for time, network and files.  [default: that of the package, if any]",
)
@click.option(
    "--iterations", type=int, help="Number of iterations to assume.  [default: as many as the measured runs took]"
)
@click.option("--workers", type=int, help="Worker processes of a cluster.  [default: none, this process]")
@click.option("--threads", type=int, help="Threads of a process.  [default: the cores of this machine]")
@click.option(
    "--memory",
    "memory_limit",
    metavar="BYTES",
    help="Bytes a process may use, as 4GiB.  [default: half of the memory]",
)
@click.option("--solver", type=click.Choice(list(SOLVERS)), default="admm", show_default=True, help="As in fit.")
@click.option(
    "--init",
    metavar="START",
    default="kmeans",
    show_default=True,
    help=f"Where to begin: {', '.join(INITS)}, or the path of a result to resume.",
)
@click.option("--n-init", type=int, default=1, show_default=True, help="Runs side by side.")
@click.option("--block-rows", type=int, help="Number of rows of a block.  [default: as fit]")
def plan_(
    graph: str | None,
    k: int,
    rows: int | None,
    entries: int | None,
    model: str | None,
    iterations: int | None,
    **options: Any,
) -> None:
    """Say how GRAPH would be clustered into K clusters, and what memory and time that takes; nothing runs.

    The memory of each way of running is computed. Time, network and files come from a cost model: a formula whose
    numbers `snmf-dist scale` has measured. They are those of the machine that it ran on.

    Exit code 2 if there is no way to keep within the memory.

    \b
    Example: snmf-dist plan graph.zarr -k 20 --workers 8 --threads 4 --memory 16GiB
             snmf-dist plan --rows 1e9 --entries 3e10 -k 20 --workers 64 --model scaling/model.json
    """
    if (graph is None) == (rows is None) or (rows is None) != (entries is None):
        raise click.UsageError("give GRAPH, or --rows and --entries of one that need not exist")
    workers = options["workers"] or 0
    if graph is not None:
        store = snmf_dist.open_graph(graph)
        found, halo = snmf_dist.plan_fit(store, k, **options), store.coupling()["halo"] * store.n / store.n_blocks
        rows, entries = store.n, store.nnz
        halo = min(halo, rows - rows / workers) if workers else 0.0
    else:
        assert rows is not None, "one or the other is given"
        assert entries is not None, "it comes with rows"
        found, halo = plan_sizes(rows, entries, k, model=model, **options), None
    given: Any = {"workers": workers, "halo": halo, "iterations": iterations, "planned": found.way.process}
    cost = snmf_dist.plan_cost(rows, entries, k, model=model, **given)
    for line in found.lines():
        click.echo(line)
    for line in [NO_MODEL] if cost is None else cost.lines():
        click.echo(line)
