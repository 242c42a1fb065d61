"""The command `generate`: points or graphs with known clusters."""

from contextlib import nullcontext
from typing import Any

import click
import numpy as np

import snmf_dist
from snmf_dist.cli.output import new_console
from snmf_dist.cli.progress import stages
from snmf_dist.engine.client import connect

MULTIPLES = {"k": 10**3, "M": 10**6, "G": 10**9}


class Count(click.ParamType):
    """A whole number, as ``250000``, ``250k``, ``32M`` or ``1e9``."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number that the text stands for."""
        text = str(value)
        digits, factor = (text[:-1], MULTIPLES[text[-1]]) if text[-1:] in MULTIPLES else (text, 1)
        try:
            number = float(digits) * factor
        except ValueError:
            number = float("nan")
        if not number.is_integer():
            self.fail(f"{text!r} is not a whole number; expected one as 250000, 250k, 32M or 1e9", param, ctx)
        return int(number)


@click.command("generate")
@click.argument("kind", type=click.Choice(["points", "graph"]))
@click.argument("out")
@click.option("--rows", type=Count(), required=True, help="Number of points or nodes, as 250000, 250k or 1e9.")
@click.option("-k", "--clusters", type=int, required=True, help="Number of clusters.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random number generator.")
@click.option("--sizes", help="Relative sizes of the clusters, with commas between.  [default: equal]")
@click.option("--dimensions", type=int, help="Points: numbers of a point.  [default: 32]")
@click.option(
    "--separation",
    type=float,
    help="Points: distance of the two nearest centres, in standard deviations of a cluster.  [default: 4]",
)
@click.option("--intrinsic", type=int, help="Points: directions that a cluster extends in.  [default: 5]")
@click.option("--curvature", type=float, help="Points: how much clusters bend; 0 for flat ones.  [default: 0.5]")
@click.option("--noise", type=float, help="Points: share of the variance equal in all directions.  [default: 0.3]")
@click.option("--degree", type=float, help="Graph: mean number of edges of a node.  [default: 30]")
@click.option(
    "--exponent",
    type=float,
    help="Graph: exponent of the power law of degrees; inf for equal degrees.  [default: 3]",
)
@click.option("--mixing", type=float, help="Graph: share of edges that lead to another cluster.  [default: 0.2]")
@click.option("--shuffle/--no-shuffle", default=None, help="Graph: number nodes at random.  [default: shuffle]")
@click.option("--scheduler", metavar="ADDRESS", help="Run on this Dask cluster.")
@click.option("--overwrite", is_flag=True, help="Replace what an earlier call made at OUT.")
def generate_(
    kind: str,
    out: str,
    rows: int,
    clusters: int,
    seed: int,
    sizes: str | None,
    scheduler: str | None,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Write points or a graph with known clusters to the folder OUT.

    OUT gets points.zarr, for `snmf-dist graph`, or edges/, a folder of Parquet files for `snmf-dist import`;
    beside them truth.npy, the true clusters, for `fit --labels`. Blocks are made one by one, so any size works;
    the same seed gives the same data on any number of processes.

    \b
    Example: snmf-dist generate graph toy --rows 100k -k 20 --mixing 0.3
             snmf-dist import toy/edges toy.zarr --symmetrize max --nodes 100000
             snmf-dist fit toy.zarr -k 20 --out result.zarr --labels toy/truth.npy
    """
    console = new_console()
    with connect(scheduler) if scheduler else nullcontext(), stages(console) as progress:
        made = snmf_dist.generate(
            kind,
            out,
            rows,
            clusters,
            seed=seed,
            sizes=_numbers(sizes),
            overwrite=overwrite,
            progress=progress,
            **{name: value for name, value in settings.items() if value is not None},
        )
    console.print(f"{kind}: {made.data}\ntrue clusters: {made.truth}", markup=False)


def _numbers(text: str | None) -> list[float] | None:
    """Numbers with commas between."""
    if text is None:
        return None
    try:
        return np.array(text.split(","), dtype=float).tolist()
    except ValueError:
        raise click.BadParameter(f"{text!r}: expected numbers with commas between", param_hint="--sizes") from None
