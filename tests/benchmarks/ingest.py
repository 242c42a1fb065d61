"""What an import costs: seconds of the processor, bytes written, and memory, of edges in random order.

Run ``python -m tests.benchmarks.ingest [--against REV] [--edges N] [--json FILE]``. The edges are those of a
generated block model, in one Parquet file. With ``--against`` another revision of this repository is checked out
beside, and the two take turns; the table then has the ratio new / old of the medians.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

import snmf_dist
from tests.benchmarks.engine import HERE, checkout
from tests.benchmarks.measure import spread, table, write_json

DEGREE, CLUSTERS = 20, 16
FIGURES = {"cpu": "processor, s", "written": "written, MB", "peak": "memory, MB", "wall": "wall, s"}
WANTED = {"cpu": 0.45, "written": 0.5}


def measure(tree: Path, edges: str, n: int, limit: str) -> dict[str, float]:
    """One run of the probe with the package of a tree."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(edges)) as folder:
        probe = str(HERE / "tests/benchmarks/ingest_probe.py")
        command = [sys.executable, "-W", "ignore", probe, edges, str(n), os.path.join(folder, "g.zarr"), limit]
        env = {**os.environ, "PYTHONPATH": str(tree)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    found: dict[str, float] = json.loads(line.removeprefix("RESULT "))
    return found


def main() -> None:
    """Measure, print the table, and write it; exit with 1 if a ratio is above what is wanted."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--against", metavar="REV", help="a revision to compare with")
    options.add_argument("--edges", type=int, default=20_000_000)
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--memory-limit", default="2GiB")
    options.add_argument("--json", metavar="FILE")
    given = options.parse_args()
    n = 2 * given.edges // DEGREE
    with (
        tempfile.TemporaryDirectory() as folder,
        checkout(given.against) if given.against else nullcontext() as old,
    ):
        made = snmf_dist.generate("graph", os.path.join(folder, "planted"), n, CLUSTERS, degree=DEGREE)
        edges = os.path.join(folder, "edges.parquet")
        parquet.write_table(parquet.read_table(made.data), edges, compression="none", use_dictionary=False)
        trees = {"new": HERE, **({"old": old} if old else {})}
        runs = [
            {name: measure(tree, edges, n, given.memory_limit) for name, tree in trees.items()}
            for _ in range(given.turns)
        ]
    rows: list[dict[str, Any]] = []
    print(
        f"| {given.edges} edges | " + " | ".join((*trees, "new / old")) + " |\n" + "|---" * (len(trees) + 2) + "|"
    )
    for figure, title in FIGURES.items():
        values = {name: [run[name][figure] for run in runs] for name in trees}
        medians = {name: float(np.median(values[name])) for name in trees}
        ratio = medians["new"] / medians["old"] if old else None
        cells = {name: {"median": medians[name], **spread(values[name])} for name in trees}
        rows.append({"figure": title, **cells, "ratio": ratio, "wanted": WANTED.get(figure)})
        print(f"| {title} | " + " | ".join(f"{m:.1f}" for m in medians.values()) + f" | {ratio or 0:.2f} |")
    if given.json:
        columns: dict[str, Any] = {"figure": "of an import", **{name: (name, ".1f") for name in trees}}
        if old:
            columns |= {"ratio": ("new / old", ".2f"), "wanted": ("at most", ".2f")}
        write_json(given.json, benchmark="ingest", tables={"ingest": table(columns, rows)})
    over = [row["figure"] for row in rows if row["ratio"] and row["wanted"] and row["ratio"] > row["wanted"]]
    if over:
        sys.exit(f"more than wanted: {', '.join(over)}")


if __name__ == "__main__":
    main()
