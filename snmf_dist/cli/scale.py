"""The command `scale`: how time, memory and traffic grow."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

import click

import snmf_dist
from snmf_dist.cli.output import new_console
from snmf_dist.cli.planting import Count
from snmf_dist.cli.studies import StudyProgress
from snmf_dist.engine.client import connect
from snmf_dist.scaling.grid import doublings

Number = TypeVar("Number")


@click.command("scale")
@click.option(
    "--rows", required=True, help="Sizes: 125k:32M doubles from the first to the last; or a list, as 10k,1M."
)
@click.option(
    "-k", "--clusters", "ks", default="20", show_default=True, help="Numbers of clusters, with commas between."
)
@click.option(
    "--workers",
    help="Numbers of worker processes to start on this machine, as 1,2,4; 0 is this process with its threads.  "
    "[default: 0 and 1 up to the number of cores]",
)
@click.option("--scheduler", metavar="ADDRESS", help="Run on this Dask cluster instead, with the workers it has.")
@click.option("--degree", default="15,30", show_default=True, help="Mean numbers of entries of a row.")
@click.option("--repeats", type=int, default=5, show_default=True, help="Equal runs of each.")
@click.option("--out", required=True, help="The folder of the study; the same command goes on with it.")
@click.option("--hours", type=float, help="Begin no run that is not expected to end within so many hours.")
@click.option("--mixing", type=float, default=0.2, show_default=True, help="As in generate.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the graphs and of the fits.")
@click.option("--memory-limit", metavar="BYTES", help="Bytes a process may use, as 4GiB.  [default: as fit]")
def scale_(
    rows: str, ks: str, workers: str | None, scheduler: str | None, degree: str, out: str, **options: Any
) -> None:
    """Measure how time, memory and traffic of a fit grow, on generated graphs with known clusters.

    Every combination of rows, degree, k and workers is run as often as --repeats says: rows alone show the growth
    with the size; the same rows on more workers strong scaling; twice the rows on twice the workers weak scaling.
    Small sizes go first, so you may stop at any time; the same command goes on where it was, and one with more
    values or repeats adds runs. More workers than there are cores measure the engine, not speed-up.

    OUT gets runs.parquet (a row a run), phases.parquet (a row a run and phase: seconds, processor seconds, bytes,
    tasks), model.json for `snmf-dist plan --model`, and scaling.html to look at, if matplotlib is installed.

    Take at least five sizes and five repeats on a machine that does nothing else.

    Exit codes: 0 all runs are done; 1 some are left; 2 bad input; 3 some failed.

    \b
    Example: snmf-dist scale --rows 125k:2M -k 20,100 --workers 0,1,2 --out scaling --hours 2
    """
    console = new_console()
    if workers is not None and scheduler:
        raise click.UsageError("--workers starts workers here, and --scheduler names a cluster: give one of them")
    sizes = _sizes(rows)
    grid: dict[str, Any] = {"ks": _several("-k", ks, int), "degrees": _several("--degree", degree, float)}
    if workers is not None:
        grid["workers"] = _several("--workers", workers, int)
    with connect(scheduler) if scheduler else nullcontext():
        study = snmf_dist.scaling_study(out, rows=sizes, progress=_Progress(console), **grid, **options)
    counts = study.counts
    console.print(f"{study.summary()}; study: {out}", markup=False)
    if counts["failed"]:
        raise click.exceptions.Exit(3)
    if counts["waiting"] or counts["running"]:
        console.print("the time is up; the same command goes on")
        raise click.exceptions.Exit(1)


class _Progress(StudyProgress):
    """Prints a line a run: what it was, and how long it took."""

    def __call__(self, study: Any) -> None:
        """Print it, if a run is done."""
        done = study.measured
        counts = study.counts
        self.console.print(
            f"{counts['done']} of {sum(counts.values())} done"
            + (f", {counts['failed']} failed" if counts["failed"] else "")
            + (f"; the longest took {max(run['wall'] for run in done):.1f} s" if done else ""),
            markup=False,
        )


def _sizes(text: str) -> list[int]:
    """The numbers of "125k:32M", each twice the one before, or of "10k,1M"."""
    if ":" not in text:
        return _several("--rows", text, _count)
    first, _, last = text.partition(":")
    return doublings(*_several("--rows", f"{first},{last}", _count))


def _count(text: str) -> int:
    return Count().convert(text, None, None)


def _several(option: str, text: str, kind: Callable[[str], Number]) -> list[Number]:
    """Values with commas between."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r}: expected numbers with commas between", param_hint=option) from None
    except click.BadParameter as error:
        raise click.BadParameter(error.message, param_hint=option) from None
