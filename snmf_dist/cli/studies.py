"""The commands of many runs: `batch` runs a TOML file, `study` shows the table, `choose-k` names a K."""

import importlib.util
import os
import tomllib
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

import snmf_dist
from snmf_dist import storage
from snmf_dist.cli.output import new_console
from snmf_dist.engine.client import connect
from snmf_dist.errors import InputError, Interrupted, SnmfError, StoreNotFound
from snmf_dist.solve.parts import SPECKS
from snmf_dist.study.folder import CHOICE, LABELS, PICTURE, SCREENED
from snmf_dist.study.spec import AXES, check_common
from snmf_dist.study.table import BY, Row, best_row, counts, seconds_left
from snmf_dist.validation import known_names

HEAD = {"graphs", "grid", "settings", "runs", "labels", "on_error", "max_at_once", "priority"}
K_COLUMNS = ("k", "separation", "eigengap", "modularity", "balanced_modularity", "agreement", "held_out")
FITTED = ("captured_share", "ari", "dispersion", "pac")
SHOWN = ("status", "captured", "captured_share", "modularity", "n_iter", "seconds", "ac", "nmi", "ari", "rank")


@click.command("batch")
@click.argument("spec")
@click.option("--out", required=True, help="The folder of the study, or its URL; the same command resumes it.")
@click.option(
    "--scheduler", metavar="ADDRESS", help="Run on this Dask cluster.  [default: threads of this process]"
)
@click.option("--dry-run", is_flag=True, help="Check everything and list the runs; run nothing, write nothing.")
@click.option("--join", is_flag=True, help="Help another process that works on this study.")
@click.option(
    "--on-error",
    type=click.Choice(["continue", "stop"]),
    help="What to do when a run fails: go on with the others, or end the study.  [default: continue]",
)
def batch(spec: str, out: str, scheduler: str | None, dry_run: bool, join: bool, on_error: str | None) -> None:
    """Run all that the TOML file SPEC describes, and keep the results in one folder.

    \b
    graphs = ["mnist.zarr", "news.zarr"]    # paths relative to SPEC; or a table of names and paths
    [grid]
    ks = "5:20"                             # or [5, 10, 20]
    seeds = 3                               # 0, 1, 2
    inits = ["kmeans", "random"]
    [settings]                              # of fit, for all runs
    max_iter = 500
    [labels]
    mnist = "labels.npy"
    [[runs]]                                # further runs, each by its settings
    graph = "news"
    k = 50

    Exit codes: 0 all runs are done; 1 some did not converge; 2 bad input; 3 some failed.

    \b
    Example: snmf-dist batch grid.toml --out study --scheduler tcp://127.0.0.1:8786
    """
    console = new_console()
    given = read_spec(spec)
    if on_error:
        given["on_error"] = on_error
    graphs = given.pop("graphs")
    report = StudyProgress(console)
    with connect(scheduler) if scheduler else nullcontext():
        try:
            study = snmf_dist.fit_many(graphs, out=out, join=join, dry_run=dry_run, progress=report, **given)
        except Interrupted:
            raise
        except SnmfError as error:
            if not report.failed:  # the input is bad: no run was begun
                raise
            click.echo(f"error: {error}", err=True)
            raise click.exceptions.Exit(3) from None
    if dry_run:
        for row in study.rows:
            console.print(_settings(row), markup=False)
        console.print(f"{len(study.rows)} runs; nothing was run")
        return
    console.print(f"{study.summary()}; study: {out}", markup=False)
    if study.exit_code:
        raise click.exceptions.Exit(study.exit_code)


@click.command("study")
@click.argument("path")
@click.option(
    "--by",
    type=click.Choice(BY),
    metavar="COLUMN",
    default="captured",
    show_default=True,
    help="The column that names the best run.",
)
@click.option("--errors", is_flag=True, help="Print the tracebacks of the runs that failed too.")
def study_(path: str, by: str, errors: bool) -> None:
    """Show the table and the state of the study at PATH, finished or under way.

    \b
    Example: snmf-dist study study --by modularity
    """
    console = new_console()
    study = snmf_dist.open_study(path)
    rows = study.rows
    shown = [name for name in SHOWN if any(row[name] is not None for row in rows)]
    parameters = [name for name in rows[0] if name.startswith("param_") and _varies(rows, name)]
    names = ["run_id", "graph", *parameters, "state", *shown]
    lines = [
        [name.removeprefix("param_") for name in names],
        *([_cell(row[name]) for name in names] for row in rows),
    ]
    _print_table(console, lines)
    best = best_row(rows, by)
    if best is not None:
        console.print(f"best by {by}: {best['run_id']} ({by} {_cell(best[by])})", markup=False)
    console.print(study.summary(), markup=False)
    if study.reason is not None:
        console.print(study.reason, markup=False)
    if errors:
        for row in rows:
            if row["state"] == "failed":
                console.print(f"{row['run_id']}:\n{study.error(row['run_id'])}", markup=False)


@click.command("choose-k")
@click.argument("graph")
@click.option(
    "-k", "--clusters", "ks", default="2:40", show_default=True, help="Numbers of clusters, as 2:40 or 5,10."
)
@click.option("--out", required=True, help="The folder of the study, or its URL; the same command resumes it.")
@click.option("--seeds", type=int, default=10, show_default=True, help="Fits for each K of the shortlist.")
@click.option("--shortlist", type=int, default=3, show_default=True, help="How many K are fitted; 0 screens only.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the screening and of the first fit.")
@click.option("--specks", type=click.Choice(SPECKS), default="drop", show_default=True, help="As in fit.")
@click.option(
    "--held-out",
    type=float,
    metavar="SHARE",
    help="Also hide this share of the pairs of rows, as 0.1, and predict them.",
)
@click.option("--memory-limit", metavar="BYTES", help="Bytes a process may use, as 4GiB.  [default: as fit]")
@click.option(
    "--scheduler", metavar="ADDRESS", help="Run on this Dask cluster.  [default: threads of this process]"
)
def choose_k_(graph: str, ks: str, out: str, scheduler: str | None, **options: Any) -> None:
    """Suggest a number of clusters for GRAPH, with the reason, or say that none stands out.

    Every K is screened on one set of eigenvectors, and the best few are fitted from several starts. The folder OUT
    holds the fits, the table ks.parquet, labels.parquet with a column K2, K3, ... for each K in the order of the
    input, and the picture choice.png if matplotlib is installed.

    Exit codes: 0 done, with a suggestion or none; 2 bad input; 3 some fits failed.

    \b
    Example: snmf-dist choose-k graph.zarr -k 2:40 --out study
    """
    console = new_console()
    wanted = _range("-k", ks)
    console.print(f"screening {len(wanted)} values of K", markup=False)
    with connect(scheduler) if scheduler else nullcontext():
        found = snmf_dist.choose_k(graph, wanted, out=out, progress=StudyProgress(console), **options)
    names = [name for name in (*K_COLUMNS, *FITTED) if any(name in row for row in found.rows)]
    _print_table(console, [names, *([_cell(row.get(name)) for name in names] for row in found.rows)])
    console.print(found.reason, markup=False)
    kept = [SCREENED, LABELS, CHOICE]
    if not storage.is_url(out) and importlib.util.find_spec("matplotlib") is not None:
        found.save_picture(os.path.join(out, PICTURE))
        kept.append(PICTURE)
    console.print(f"study: {out}, with {', '.join(kept)}", markup=False)
    if found.study is not None and found.study.counts["failed"]:
        console.print(f"some fits failed: {found.study.summary()}", markup=False)
        raise click.exceptions.Exit(3)


def _print_table(console: Console, lines: list[list[str]]) -> None:
    """Print cells in columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        console.print(text.rstrip(), markup=False)


class StudyProgress:
    """Prints a line whenever runs begin, and at the end: the states, the best so far, about how long it takes."""

    def __init__(self, console: Console) -> None:
        self.console, self.shown = console, {"running": 0}
        self.failed = 0  # runs

    def __call__(self, study: snmf_dist.Study) -> None:
        """Print it, if runs have begun or all have ended since the last time."""
        rows = study.rows
        states = counts(rows)
        self.failed = states["failed"]
        if states == self.shown or (states["waiting"] and not states["running"]):
            return
        self.shown = states
        text = ", ".join(f"{number} {state}" for state, number in states.items())
        best, left = best_row(rows, "captured_share"), seconds_left(rows)
        if best is not None:
            text += f"; best captured share {best['captured_share']:.4f} (k={best['param_k']})"
        if left:
            text += f"; about {timedelta(seconds=round(left))} left"
        self.console.print(escape(text))


def read_spec(path: str) -> dict[str, Any]:
    """Read the arguments of `fit_many` from a TOML file; its paths are relative to its folder."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            given = tomllib.loads(file.read())
    except FileNotFoundError:
        raise StoreNotFound(f"{path}: no such file; expected a TOML file that describes the runs") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as TOML ({error})") from None
    known_names(path, given, HEAD)
    if "graphs" not in given:
        raise InputError(f'{path}: names no graphs; add a line such as graphs = ["graph.zarr"]')
    grid = _table(path, given, "grid")
    known_names(f"{path}: grid", grid, set(AXES.values()))
    if isinstance(grid.get("ks"), str):
        grid["ks"] = _range(f"{path}: ks", grid["ks"])
    folder = os.path.dirname(os.path.abspath(path))
    arguments: dict[str, Any] = {
        name: given[name] for name in ("runs", "on_error", "max_at_once", "priority") if name in given
    }
    arguments["graphs"] = _place(given["graphs"], folder)
    if "labels" in given:
        arguments["labels"] = _place(given["labels"], folder)
    return {**arguments, **grid, **check_common(_table(path, given, "settings"))}


def _table(path: str, given: dict[str, Any], name: str) -> dict[str, Any]:
    found = given.get(name, {})
    if not isinstance(found, dict):
        raise InputError(f"{path}: {name} is {found!r}; expected a table, [{name}]")
    return dict(found)


def _range(name: str, text: str) -> list[int]:
    """The numbers of "2:10", the last one with them, of "2:10:2" or of "3,5,8"."""
    found: list[int] = []
    try:
        for piece in text.split(","):
            first, *rest = (int(part) for part in piece.split(":"))
            last, *step = rest or [first]
            found += range(first, last + 1, *step)
    except (ValueError, TypeError):
        raise InputError(f'{name} is {text!r}; expected numbers, or a range as "2:10" or "2:10:2"') from None
    return found


def _place(value: Any, folder: str) -> Any:
    """Paths seen from `folder`; URLs and absolute paths as they are."""
    if isinstance(value, dict):
        return {name: _place(one, folder) for name, one in value.items()}
    if isinstance(value, list):
        return [_place(one, folder) for one in value]
    if not isinstance(value, str):
        raise InputError(f"{value!r} is not a path; expected the text of one")
    return value if storage.is_url(value) else os.path.join(folder, os.path.expanduser(value))


def _settings(row: Row) -> str:
    named = [f"{name}={row[f'param_{name}']}" for name in AXES]
    return f"{row['run_id']}  {row['graph']}  {' '.join(named)}"


def _varies(rows: list[Row], name: str) -> bool:
    return name in ("param_k", "param_seed") or len({str(row[name]) for row in rows}) > 1


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
