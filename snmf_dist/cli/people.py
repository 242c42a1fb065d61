"""The commands that hand a result to people and to other programs: `predict`, `export`, `compare` and `report`."""

import os
from functools import partial
from typing import Any

import click
import numpy as np

import snmf_dist
from snmf_dist import storage
from snmf_dist.cli.output import new_console, print_facts
from snmf_dist.errors import InputError
from snmf_dist.graph.build.rowids import open_row_ids
from snmf_dist.result.export import check_new_file, write_whole
from snmf_dist.result.newnodes import is_edge_source
from snmf_dist.result.placing import graph_of, place
from snmf_dist.result.tables import SUFFIXES, TableWriter, table_of


@click.command("predict")
@click.argument("result")
@click.argument("new")
@click.option("--out", required=True, help="Where to write the labels: .csv or .parquet.")
@click.option("--points", help="The points that the graph was built from, if they were moved.")
@click.option("--ids", metavar="COLUMN", help="Column of NEW, Parquet or Arrow, with ids of the new points.")
@click.option("--columns", help="Columns of an edge list NEW: new node, known node, weight, with commas between.")
@click.option("--first-id", type=int, default=0, show_default=True, help="Id of the first node, as for import.")
@click.option("--block-rows", type=click.IntRange(1), help="New points in memory at a time.")
@click.option("--overwrite", is_flag=True, help="Replace the file at --out.")
def predict_(
    result: str,
    new: str,
    out: str,
    points: str | None,
    ids: str | None,
    columns: str | None,
    first_id: int,
    block_rows: int | None,
    overwrite: bool,
) -> None:
    """Label the new points NEW by the clusters of RESULT, a block at a time.

    A line for each point: its id or number, label, strength, second label, whether it is far from all known points
    (novel), and its memberships. If the graph was imported, NEW is an edge list from new nodes to known ones, and
    there is a line for each new node.

    \b
    Examples: snmf-dist predict result.zarr tomorrow.npy --out labels.csv
              snmf-dist predict result.zarr new-edges.csv --out labels.csv
    """
    target = storage.normal_path(out)
    check_new_file(target, SUFFIXES, overwrite=overwrite)
    solution = snmf_dist.open_solution(result)
    graph = graph_of(solution.provenance)
    names: Any = None
    rows: Any = new
    if "search" not in graph.block and is_edge_source(storage.normal_path(new)):
        given = columns.split(",") if columns else None
        names, rows = solution.new_nodes(new, columns=given, first_id=first_id)
    else:
        names, _ = open_row_ids(new, ids, None, None)
    more: Any = {"points": points, "graph": graph, "block_rows": block_rows}
    found = place(solution.membership, solution.provenance, rows, **more)
    counts = np.zeros(3, dtype=int)
    write_whole(target, partial(_write, found=found, names=names, counts=counts))
    rows_labelled, novel, none = counts.tolist()
    what = "new points" if rows is new else "new nodes"
    print_facts(new_console(), {what: rows_labelled, "novel": novel, "in no cluster": none, "labels": out})


def _write(path: str, found: Any, names: Any, counts: np.ndarray) -> None:
    with TableWriter(path) as file:
        for block in found:
            start, stop = int(counts[0]), int(counts[0]) + len(block.labels)
            ids = np.arange(start, stop) if names is None else names[start:stop]
            file.write(table_of(ids, block.labels, block.membership, novel=block.novel))
            counts += (stop - start, int(block.novel.sum()), int((block.labels < 0).sum()))


@click.command("export")
@click.argument("result")
@click.option("--to", required=True, help="labels.csv, .parquet, .gexf, .graphml, or an AnnData .zarr.")
@click.option("--overwrite", is_flag=True, help="Replace the file.")
def export_(result: str, to: str, overwrite: bool) -> None:
    """Write RESULT for other programs: id, label, strength, second label and memberships.

    The suffix names the format. An AnnData store that is there gets obs["snmf"], obsm["X_snmf"] and uns["snmf"].

    \b
    Example: snmf-dist export result.zarr --to labels.csv
    """
    snmf_dist.open_solution(result).export(to, overwrite=overwrite)
    click.echo(f"written: {to}")


@click.command("report")
@click.argument("path", metavar="RESULT|STUDY")
@click.option("--out", required=True, help="The page to write, .html.")
@click.option("--points", help="Coordinates for the map: .npy, .npz, .parquet or Zarr, (n, 2) or more columns.")
@click.option("--features", help="Features of the rows; in a .npy of three axes, images.")
@click.option("--feature-names", metavar="FILE", help="Names of the features, a line each.")
@click.option("--ids", metavar="FILE", help="Ids of the rows, a line each.")
@click.option("--compare", "other", metavar="RESULT", help="Another result of the same rows, to be shown beside.")
@click.option("--graph", help="The graph, if it was moved.")
@click.option("--overwrite", is_flag=True, help="Replace the file at --out.")
def report_(path: str, out: str, other: str | None, graph: str | None, overwrite: bool, **given: Any) -> None:
    """Write a page to look at of a result, or of the study of `batch`: one HTML file that needs nothing else.

    \b
    Example: snmf-dist report result.zarr --out report.html
    """
    if os.path.exists(os.path.join(path, "study.json")):
        if any(given.values()) or other or graph:
            raise InputError(f"{path}: is a study; points, features, ids, compare and graph go with results")
        snmf_dist.open_study(path).report(out, overwrite=overwrite)
    else:
        for name in ("feature_names", "ids"):
            given[name] = None if given[name] is None else _lines(given[name])
        snmf_dist.open_solution(path).report(
            out,
            compare=None if other is None else snmf_dist.open_solution(other),
            graph=None if graph is None else snmf_dist.open_graph(graph),
            overwrite=overwrite,
            **given,
        )
    click.echo(f"written: {out}")


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as lines of text ({error})") from None


@click.command("compare")
@click.argument("one")
@click.argument("other")
def compare_(one: str, other: str) -> None:
    """Compare the results ONE and OTHER: how far they agree, and which clusters correspond.

    Rows are matched by their ids, if both results have ids.
    """
    first, second = snmf_dist.open_solution(one), snmf_dist.open_solution(other)
    found = first.compare(second)
    facts: dict[str, Any] = {
        "adjusted Rand index": f"{found.ari:.4f}",
        "NMI": f"{found.nmi:.4f}",
        "rows that moved": f"{len(found.moved)} of {found.table.sum()}",
    }
    for mine, theirs in found.matched.items():
        both = found.table[mine, theirs]
        facts[f"cluster {mine}"] = (
            f"is {theirs}: {both} rows in both, {found.table[mine].sum()} here, "
            f"{found.table[:, theirs].sum()} there"
        )
    print_facts(new_console(), facts)
