"""What the page of a result costs: seconds beside the passes over graph and membership, and bytes.

python -m tests.benchmarks.report                       graphs of 20,000, 200,000 and 2 million rows
python -m tests.benchmarks.report --rows 20000

Each graph has clusters of neighbours at random and its clusters are found by `fit`. The pass is what cannot be
left out: every block of the graph and of the membership is read once. Exits with 1 if a claim does not hold.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from typing import Any

import numpy as np
from scipy import sparse

import snmf_dist
from snmf_dist.report.html import LIMIT
from snmf_dist.result.tables import blocks
from tests.benchmarks.measure import table, write_json

K = 16
BESIDE = 5.0  # seconds that a page may take beside the passes
COLUMNS: dict[str, Any] = {
    "rows": ("rows", ","),
    "entries": ("entries of A", ","),
    "size": ("page, kB", ".0f"),
    "report": ("page, s", ".1f"),
    "one_pass": ("reading graph and membership once, s", ".1f"),
    "beside": ("difference, s; at most 5", ".1f"),
}


def draw_graph(n: int, folder: str) -> snmf_dist.GraphStore:
    """A graph of `K` groups: five edges a row within its group, and one to any row."""
    random = np.random.default_rng(0)
    rows = np.repeat(np.arange(n), 5)
    columns = rows // (n // K) * (n // K) + random.integers(0, n // K, len(rows))
    rows, columns = np.append(rows, np.arange(n)), np.append(columns % n, random.integers(0, n, n))
    keep = rows != columns
    W = sparse.csr_matrix((np.ones(keep.sum(), np.float32), (rows[keep], columns[keep])), (n, n))
    return snmf_dist.import_graph(W.maximum(W.T), os.path.join(folder, "graph.zarr"))


def read_once(solution: snmf_dist.Solution, graph: snmf_dist.GraphStore) -> None:
    """Every block of the graph and of the membership."""
    for i in range(graph.n_blocks):
        graph.read_block(i)
    for _ in blocks(solution):
        pass


def measure(n: int) -> dict[str, Any]:
    """The figures of one graph; the page is written twice, and the second counts, when matplotlib is loaded."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        graph, page = draw_graph(n, folder), os.path.join(folder, "page.html")
        snmf_dist.fit(graph, K, out=os.path.join(folder, "result.zarr"))
        solution = snmf_dist.open_solution(os.path.join(folder, "result.zarr"))
        for _ in range(2):
            begun = time.perf_counter()
            solution.report(page, overwrite=True)
            report = time.perf_counter() - begun
        begun = time.perf_counter()
        read_once(solution, graph)
        one_pass = time.perf_counter() - begun
        size = os.path.getsize(page)
    return {
        "rows": n,
        "entries": graph.nnz,
        "size": size / 1000,
        "report": report,
        "one_pass": one_pass,
        "beside": report - one_pass,
        "holds": size <= LIMIT and report - one_pass <= BESIDE,
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure and print, and exit with 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 200_000, 2_000_000])
    parser.add_argument("--json", metavar="FILE", help="write the figures here too, as docs/render.py reads them")
    given = parser.parse_args(arguments)
    lines = []
    for n in given.rows:
        lines.append(measure(n))
        print(", ".join(f"{name} {value:.4g}" for name, value in lines[-1].items()), flush=True)
    if given.json:
        command = f"python -m tests.benchmarks.report --rows {' '.join(map(str, given.rows))}"
        write_json(given.json, benchmark="report", command=command, tables={"report": table(COLUMNS, lines)})
    sys.exit(not all(line["holds"] for line in lines))


if __name__ == "__main__":
    main()
