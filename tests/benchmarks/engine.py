"""What the engine itself costs on a cluster: tasks, processor time and wall time of an iteration of tiny blocks.

Run ``python -m tests.benchmarks.engine [--against REV] [--json FILE]``. Each row block of the graph is coupled
with every other one by a few entries, as in every real graph. With ``--against`` another revision of this
repository is checked out beside, and the two take turns; the table then has the ratio new / old of the medians. A
last row compares an iteration in one process, in memory, of a graph of 200,000 rows.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import snmf_dist
from tests.benchmarks.measure import spread, table, write_json

HERE = Path(__file__).resolve().parents[2]
BLOCKS = (2, 4, 8, 16, 32)
ROWS = 200  # of a block
COUPLED = 4  # entries between each pair of blocks
K, TURNS = 8, 3
LOCAL_ROWS, LOCAL_K = 200_000, 20
FIGURES = {"tasks": ".0f", "cpu": ".3f", "wall": ".3f"}


def coupled_graph(folder: str, P: int) -> str:
    """A graph of P blocks, each coupled with every other one by a few entries; its path."""
    random, n = np.random.default_rng(0), ROWS * P
    ring = sparse.diags_array([1.0, 1.0], offsets=[1, 2], shape=(n, n))
    pairs = [(i, j) for i in range(P) for j in range(i)]
    ends = [[ROWS * b + random.integers(0, ROWS, COUPLED) for b in pair] for pair in pairs]
    rows, columns = np.concatenate([np.stack(one) for one in ends], axis=1)
    far = sparse.coo_array((np.full(len(rows), 0.1), (rows, columns)), (n, n))
    path = os.path.join(folder, f"coupled-{P}.zarr")
    W = sparse.csr_matrix(ring + far)
    snmf_dist.import_graph(W + W.T, path, reorder=False, block_rows=ROWS)
    return path


def ring_graph(folder: str) -> str:
    """A graph for one process: every row is joined to 15 on either side."""
    offsets = [d for d in range(-15, 16) if d]
    ring = sparse.diags_array([1.0] * 30, offsets=offsets, shape=(LOCAL_ROWS, LOCAL_ROWS), format="csr")
    path = os.path.join(folder, "ring.zarr")
    snmf_dist.import_graph(ring, path, reorder=False)
    return path


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """Another revision of this repository, beside."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "old"
        subprocess.run(["git", "-C", HERE, "worktree", "add", "-q", "--detach", place, revision], check=True)
        try:
            yield place
        finally:
            subprocess.run(["git", "-C", HERE, "worktree", "remove", "--force", place], check=True)


def measure(tree: Path, path: str, P: int, k: int) -> dict[str, float]:
    """One run of the probe with the package of a tree."""
    command = [sys.executable, str(HERE / "tests/benchmarks/engine_probe.py"), path, str(P), str(k)]
    env = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    found: dict[str, float] = json.loads(line.removeprefix("RESULT "))
    return found


def compare(trees: dict[str, Path], path: str, P: int, k: int) -> dict[str, Any]:
    """The medians of each tree, taking turns, and their ratio."""
    runs = [{name: measure(tree, path, P, k) for name, tree in trees.items()} for _ in range(TURNS)]
    row: dict[str, Any] = {"blocks": P or "one process"}
    for figure in FIGURES:
        values = {name: [run[name][figure] for run in runs] for name in trees}
        row[figure] = {"median": float(np.median(values["new"])), **spread(values["new"])}
        if "old" in trees and np.median(values["old"]):
            row[f"{figure} ratio"] = float(np.median(values["new"]) / np.median(values["old"]))
    return row


def main() -> None:
    """Measure, print the table, and write it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--against", metavar="REV", help="a revision to compare with")
    options.add_argument("--blocks", nargs="+", type=int, default=BLOCKS)
    options.add_argument("--json", metavar="FILE")
    given = options.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        checkout(given.against) if given.against else nullcontext() as old,
    ):
        trees = {"new": HERE, **({"old": old} if old else {})}
        head = [
            "tasks",
            "limit",
            "cpu, s",
            "wall, s",
            *(["tasks ratio", "cpu ratio", "wall ratio"] if old else []),
        ]
        print("| blocks | " + " | ".join(head) + " |\n" + "|---" * (1 + len(head)) + "|", flush=True)
        rows = []
        for P in (*given.blocks, 0):
            path = coupled_graph(folder, P) if P else ring_graph(folder)
            row = compare(trees, path, P, K if P else LOCAL_K)
            row["limit"] = 10 * P + 10 if P else None
            rows.append(row)
            cells = [f"{row['tasks']['median']:.0f}", str(row["limit"] or "–")]
            cells += [f"{row[name]['median']:.3f}" for name in ("cpu", "wall")]
            cells += [f"{row.get(f'{name} ratio', float('nan')):.2f}" for name in FIGURES] if old else []
            print(f"| {row['blocks']} | " + " | ".join(cells) + " |", flush=True)
    if given.json:
        columns: dict[str, Any] = {"blocks": "blocks", "limit": "tasks, at most"}
        for name, form in FIGURES.items():
            columns |= {
                name: (name, form),
                **({f"{name} ratio": (f"{name}, new / old", ".2f")} if given.against else {}),
            }
        write_json(given.json, benchmark="engine", tables={"engine": table(columns, rows)})
    over = [row for row in rows if row["limit"] and row["tasks"]["median"] > row["limit"]]
    if over:
        sys.exit(f"more tasks than 10 P + 10 at P = {[row['blocks'] for row in over]}")


if __name__ == "__main__":
    main()
