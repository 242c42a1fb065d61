"""What checkpoints cost a run: `fit` with and without them, in memory and on two worker processes.

Last it says what checking the column numbers of A costs: all blocks are read with and without.

Run ``python -m tests.benchmarks.checkpoints``; options say how many rows, entries a row, clusters and turns.
The graph is generated once and kept in the folder. How many iterations a run has is found first: as many as the
settings of `fit` need for five checkpoints, and 300 at least. Then runs with and without them take turns; the
figure is the median of their ratios, less 1. Exit code 1 if it is more than 3 %.

``--parts`` and ``--json`` measure a part at a time: the turns of a place that are in the file already are kept,
and its number of iterations.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy import sparse

import snmf_dist
from snmf_dist.engine import machine
from snmf_dist.result.checkpoints import CheckpointFolder
from tests.benchmarks.measure import spread, table, write_json

MOST = 0.03  # share of a run that checkpoints may take
ITERATIONS, CHECKPOINTS = 300, 5  # of a run, at least
LONGEST = 100_000  # iterations of the run that finds out how many it takes
ITERATING = {"init": "random", "rho": 0.3, "stop": "paper", "tol": 1e-30, "evaluate_every": 10_000}
PARTS = ("memory", "workers", "reading")
IN_MEMORY, ON_WORKERS = "in memory", "two worker processes"
COLUMNS = {
    "place": "place",
    "iterations": "iterations a run",
    "checkpoints": "checkpoints a run",
    "without": ("seconds without", ".1f"),
    "found": ("cost", ".1%"),
    "most": ("aim, at most", ".0%"),
}
READING = {
    "what": "what",
    "entries": ("entries", ",d"),
    "without": ("seconds without the check", ".2f"),
    "found": ("cost of the check", ".1%"),
}


def ring(folder: str, n: int, entries: int) -> snmf_dist.GraphStore:
    """Rows on a ring: each is coupled with its neighbours, and by one entry in eight with any other row."""
    path = os.path.join(folder, f"ring-{n}-{entries}.zarr")
    if not os.path.exists(path):
        random, half = np.random.default_rng(0), entries // 2
        source = np.repeat(np.arange(n), half)
        target = (source + np.tile(np.arange(1, half + 1), n)) % n
        far = random.random(len(source)) < 0.125
        target[far] = random.integers(0, n, int(far.sum()))
        weights = random.random(len(source)).astype(np.float32) + 0.5
        W = sparse.coo_matrix((weights, (source, target)), shape=(n, n)).tocsr()
        snmf_dist.import_graph(W, path, symmetrize="max", self_loops="drop")
    return snmf_dist.open_graph(path)


@contextmanager
def counted() -> Iterator[list[int]]:
    """The numbers of the checkpoints that become whole meanwhile."""
    found: list[int] = []
    commit = CheckpointFolder.commit

    def and_count(self: Any, place: str, block: Any) -> None:
        commit(self, place, block)
        found.append(block["number"])

    with patch.object(CheckpointFolder, "commit", and_count):
        yield found


class Enough(snmf_dist.Listener):
    """Ends a run that has had as many checkpoints and iterations as it takes."""

    sees_state = False

    def __init__(self, checkpoints: list[int]) -> None:
        self.checkpoints, self.iterations = checkpoints, 0

    def on_iteration(self, record: Any, state: Any) -> None:
        """Count."""
        self.iterations = record.iteration
        if len(self.checkpoints) > CHECKPOINTS and record.iteration >= ITERATIONS:
            raise StopIteration


def run(graph: snmf_dist.GraphStore, k: int, out: str, iterations: int, **settings: Any) -> float:
    """Seconds of a fit."""
    os.sync()  # what earlier runs wrote is not this one's cost
    begin = time.perf_counter()
    snmf_dist.fit(graph, k, **ITERATING, max_iter=iterations, out=out, overwrite=True, resume=False, **settings)
    return time.perf_counter() - begin


def iterations_needed(graph: snmf_dist.GraphStore, k: int, out: str) -> int:
    """Iterations in which more than enough checkpoints are written."""
    with counted() as checkpoints:
        enough = Enough(checkpoints)
        try:
            run(graph, k, out, LONGEST, listeners=[enough])
        except StopIteration:
            return max(ITERATIONS, int(1.1 * enough.iterations))
    raise RuntimeError(f"{LONGEST} iterations, and {len(checkpoints)} checkpoints only; pass more --rows")


def compare(place: str, graph: snmf_dist.GraphStore, k: int, folder: str, turns: int, line: Any) -> dict[str, Any]:
    """A line of the table, printed too; one that is there already gets more turns."""
    out = os.path.join(folder, "checkpoints-result.zarr")
    line = line or {"place": place, "iterations": iterations_needed(graph, k, out), "turns": []}
    for turn in range(len(line["turns"]), len(line["turns"]) + turns):
        seconds, written = {}, {}
        for every in ("auto", None) if turn % 2 else (None, "auto"):  # either is first in turn
            with counted() as checkpoints:
                seconds[every] = run(graph, k, out, line["iterations"], listeners=[], checkpoint_every=every)
            written[every] = len(checkpoints)
        line["turns"].append({"without": seconds[None], "with": seconds["auto"], "checkpoints": written["auto"]})
    ratios = [turn["with"] / turn["without"] - 1 for turn in line["turns"]]
    numbers = [turn["checkpoints"] for turn in line["turns"]]
    alone = median(turn["without"] for turn in line["turns"])
    found = {"median": median(ratios), **spread(ratios)}
    enough = min(numbers) >= CHECKPOINTS
    holds = enough and found["median"] <= MOST
    each = ", ".join(f"{100 * ratio:.1f}" for ratio in ratios)
    verdict = "ok" if holds else "FAILS" if enough else "TOO FEW CHECKPOINTS"
    counts = f"{line['iterations']} iterations, {min(numbers)} to {max(numbers)} checkpoints"
    print(f"{place}: {counts}, {alone:.1f} s without")
    print(f"  cost {100 * found['median']:.1f} % ({each}), at most {100 * MOST:.0f} %: {verdict}", flush=True)
    return {**line, "checkpoints": median(numbers), "without": alone, "found": found, "most": MOST, "holds": holds}


def read_all(graph: snmf_dist.GraphStore) -> float:
    """Seconds of reading each block of A."""
    begin = time.perf_counter()
    for i in range(graph.n_blocks):
        graph.read_block(i)
    return time.perf_counter() - begin


def compare_reading(graph: snmf_dist.GraphStore, turns: int) -> dict[str, Any]:
    """A line on checking that no column number is outside A, printed too."""
    ratios, alone = [], []
    read_all(graph)  # from now on the files are in memory
    for _ in range(turns):
        with patch("snmf_dist.graph.store.reader.safe_pattern", return_value=True):
            alone.append(read_all(graph))
        ratios.append(read_all(graph) / alone[-1] - 1)
    found = {"median": median(ratios), **spread(ratios)}
    print(f"reading A: {median(alone):.2f} s, checking its column numbers {100 * found['median']:.1f} % more")
    return {"what": "reading all blocks of A", "entries": graph.nnz, "without": median(alone), "found": found}


def earlier(path: str | None) -> tuple[dict[str, Any], list[Any]]:
    """The lines that a file has already: those of the places, and that on reading."""
    if path is None or not os.path.exists(path):
        return {}, []
    with open(path, encoding="utf-8") as file:
        tables = json.load(file)["tables"]
    return {line["place"]: line for line in tables["claims"]["rows"]}, tables["reading"]["rows"]


def main() -> None:
    """Print the lines."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--entries", type=int, default=16, help="entries of a row, about")
    options.add_argument("--k", type=int, default=4, help="clusters; what a checkpoint holds grows with them")
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--folder", help="where the graph is kept from one run to the next")
    options.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options.add_argument("--json", help="write the tables here too, as docs/render.py reads them")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made, machine.one_blas_thread():
        folder = given.folder or made
        os.makedirs(folder, exist_ok=True)
        graph = ring(folder, given.rows, given.entries)
        what = (graph, given.k, folder, given.turns)
        lines, reading = earlier(given.json)
        if "memory" in given.parts:
            lines[IN_MEMORY] = compare(IN_MEMORY, *what, lines.get(IN_MEMORY))
        if "workers" in given.parts:
            from distributed import Client, LocalCluster

            places = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
            with LocalCluster(n_workers=2, threads_per_worker=1, **places) as two, Client(two):
                lines[ON_WORKERS] = compare(ON_WORKERS, *what, lines.get(ON_WORKERS))
        if "reading" in given.parts:
            reading = [compare_reading(graph, 3 * given.turns)]
    if given.json:
        shape = f"--rows {given.rows} --entries {given.entries} --k {given.k}"
        command = f"python -m tests.benchmarks.checkpoints {shape}"
        tables = {"claims": table(COLUMNS, lines.values()), "reading": table(READING, reading)}
        write_json(given.json, benchmark="checkpoints", command=command, tables=tables)
    sys.exit(0 if all(line["holds"] for line in lines.values()) else 1)


if __name__ == "__main__":
    main()
