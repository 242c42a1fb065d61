"""What text ids cost: the import of the same edges with UUID strings and with whole numbers as node ids.

Run ``python -m tests.benchmarks.ids``. Each import is a process of its own with ``memory_limit="1GiB"``; the two
kinds take turns. The claims: a peak below 1 GiB, and at most three times the processor time of whole numbers.
"""

import argparse
import os
import statistics
import sys
import tempfile
import uuid
from typing import Any

import numpy as np

from tests.benchmarks.measure import in_process, spread, table, write_json

LIMIT = 1 << 30  # bytes
MOST = 3.0  # times the processor time of whole numbers
PIECE = 1 << 18  # edges written at a time
COLUMNS: dict[str, Any] = {
    "ids": "node ids",
    "cpu": ("processor time, s", ".0f"),
    "spread": ("spread, s", ".0f"),
    "rss": ("peak memory, GB", ".2f"),
    "size": ("file, GB", ".2f"),
}


def write_edges(folder: str, edges: int, nodes: int, kind: str) -> dict[str, str]:
    """The same random edges twice, between whole numbers and between UUIDs; the paths by kind of id."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    random = np.random.default_rng(0)
    names = pa.array([str(uuid.UUID(bytes=random.bytes(16))) for _ in range(nodes)])
    types = {"whole numbers": pa.int64(), "UUIDs": pa.string()}
    paths = {ids: os.path.join(folder, f"{ids}.{kind}") for ids in types}
    schemas = {ids: pa.schema([("source", t), ("target", t)]) for ids, t in types.items()}
    writer = csv.CSVWriter if kind == "csv" else parquet.ParquetWriter
    files = {ids: writer(path, schemas[ids]) for ids, path in paths.items()}
    for start in range(0, edges, PIECE):
        ends = random.integers(0, nodes, (2, min(PIECE, edges - start)))
        for ids, file in files.items():
            columns = [pa.array(end) if ids == "whole numbers" else names.take(pa.array(end)) for end in ends]
            file.write_table(pa.table(columns, schema=schemas[ids]))
    for file in files.values():
        file.close()
    return paths


def import_one(path: str, out: str) -> dict[str, Any]:
    """Import the edges at `path`, and say what the graph has."""
    import snmf_dist

    graph = snmf_dist.import_graph(path, out, symmetrize="max", memory_limit=LIMIT, overwrite=True)
    return {"n": graph.n, "nnz": graph.nnz, "ids": None if graph.ids is None else graph.ids.kind}


def main() -> None:
    """Print the figures, and exit with 1 if a claim does not hold."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--edges", type=int, default=10_000_000)
    options.add_argument("--nodes", type=int, default=1_000_000)
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--kind", choices=["csv", "parquet"], default="csv")
    options.add_argument("--folder", help="for the files; by default a temporary one")
    options.add_argument("--json", help="write the figures here too, as docs/render.py reads them")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        paths = write_edges(folder, given.edges, given.nodes, given.kind)
        sizes = {ids: os.path.getsize(path) for ids, path in paths.items()}
        costs: dict[str, list[Any]] = {ids: [] for ids in paths}
        for turn in range(given.turns):
            for ids, path in paths.items():
                out = os.path.join(folder, "graph.zarr")
                cost = in_process("tests.benchmarks.ids", "import_one", path=path, out=out)
                costs[ids].append(cost)
                print(
                    f"turn {turn + 1}, {ids}: {cost.cpu:.1f} s of processor, {cost.wall:.1f} s, peak "
                    f"{cost.rss / 1e9:.2f} GB, {cost.result['n']} nodes, {cost.result['nnz']} entries",
                    flush=True,
                )
    rows = [
        {
            "ids": ids,
            "cpu": {"median": statistics.median(cost.cpu for cost in found)},
            "spread": spread(cost.cpu for cost in found),
            "rss": max(cost.rss for cost in found) / 1e9,
            "size": sizes[ids] / 1e9,
        }
        for ids, found in costs.items()
    ]
    ratio = rows[1]["cpu"]["median"] / rows[0]["cpu"]["median"]
    claims = {
        f"peak memory with UUIDs {rows[1]['rss']:.2f} GB; at most 1.07": rows[1]["rss"] * 1e9 <= LIMIT,
        f"processor time {ratio:.2f} times that of whole numbers; at most {MOST:g}": ratio <= MOST,
    }
    for claim, holds in claims.items():
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {claim}")
    if given.json:
        sizes = f"--edges {given.edges} --nodes {given.nodes} --kind {given.kind} --turns {given.turns}"
        command = f"python -m tests.benchmarks.ids {sizes}"
        write_json(given.json, benchmark="ids", command=command, tables={"ids": table(COLUMNS, rows)})
    sys.exit(not all(claims.values()))


if __name__ == "__main__":
    main()
