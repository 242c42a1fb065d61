"""What the default start costs: its k-means part at many clusters, and a whole fit of very many.

Run ``python -m tests.benchmarks.start [names] [--folder F] [--json FILE]``; a line for each claim, exit code 1 if
one fails. The graphs are block models with as many groups as clusters are asked for, made once and kept in the
folder. The k-means part is all that `kmeans_start` does before it compares its clusterings: the sample, sixteen or
fewer starts on it, and the nearest centre of each row of the graph. Seconds are those of the processor.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from typing import Any

import numpy as np

import snmf_dist
from snmf_dist.engine import machine
from snmf_dist.solve import start
from tests.benchmarks.measure import table, write_json

COLUMNS = {"what": "what", "found": ("found", ".1f"), "most": ("aim, at most", "g"), "more": "more"}
_lines: list[dict[str, Any]] = []


def claim(what: str, found: float, most: float | None, more: str) -> None:
    """Print a line of the table, and whether it holds."""
    holds = most is None or found <= most
    _lines.append({"what": what, "found": float(found), "most": most, "more": more, "holds": holds})
    print(f"| {what} | {found:.1f} | {most} | {'ok' if holds else 'FAILS'} | {more} |", flush=True)


def planted(folder: str, n: int, k: int) -> tuple[snmf_dist.GraphStore, str]:
    """A block model of `n` nodes in `k` groups, made once, and the file of its groups."""
    made, path = os.path.join(folder, f"groups-{n}-{k}"), os.path.join(folder, f"groups-{n}-{k}.zarr")
    if not os.path.exists(path):
        edges = snmf_dist.generate("graph", made, n, k, degree=30, mixing=0.1, overwrite=True)
        snmf_dist.import_graph(edges.data, path, symmetrize="max")
    return snmf_dist.open_graph(path), os.path.join(made, "truth.npy")


def fit(graph: snmf_dist.GraphStore, k: int) -> tuple[snmf_dist.Solution, float, float]:
    """A fit by default, and seconds of its processor: of the k-means part, and of all."""
    parts, whole = [0.0], start._candidates

    def watched(*given: Any, **settings: Any) -> Any:
        begin = time.process_time()
        labels = whole(*given, **settings)
        parts[0] += time.process_time() - begin
        return labels

    start._candidates = watched
    try:
        begin = time.process_time()
        solution = snmf_dist.fit(graph, k)
        return solution, parts[0], time.process_time() - begin
    finally:
        start._candidates = whole


def many(folder: str, n: int, k: int, most: float | None) -> None:
    """The k-means part of a start, and that the run ends."""
    graph, truth = planted(folder, n, k)
    solution, part, spent = fit(graph, k)
    nmi = snmf_dist.score(solution.labels, np.load(truth)).nmi
    claim(f"{n} rows, k = {k}: k-means part of the start", part, most, f"NMI {nmi:.3f}")
    more = ", ".join(f"{name} {value:.0f} s" for name, value in solution.provenance["phases"].items())
    claim(f"{n} rows, k = {k}: the whole fit", spent, None, f"{solution.status.name}; by the clock: {more}")


WORK = {
    "200": lambda folder: many(folder, 300_000, 200, 20),
    "585": lambda folder: many(folder, 100_000, 585, None),
}


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", help=f"some of: {' '.join(WORK)}")
    options.add_argument("--folder", help="where graphs are kept from one run to the next")
    options.add_argument("--make", action="store_true", help="make the graphs and no more")
    options.add_argument("--json", help="write the table here too, as docs/render.py reads it")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made, machine.one_blas_thread():
        folder = given.folder or made
        if given.make:
            planted(folder, 300_000, 200), planted(folder, 100_000, 585)
            return
        for name in given.names or WORK:
            WORK[name](folder)
    if given.json:
        write_json(given.json, benchmark="start", tables={"claims": table(COLUMNS, _lines)})
    sys.exit(0 if all(line["holds"] for line in _lines) else 1)


if __name__ == "__main__":
    main()
