"""Runs side by side against one after the other: 16 runs of `fit_many`, stacked and not, in turns.

    python -m tests.benchmarks.batch [--rows 300000] [--degree 30] [--set NAME] [--ks 4,8,12,16] [--runs 16]
                                     [--init random] [--workers 0] [--memory BYTES] [--block-rows N] [--turns 3]
                                     [--json FILE]

With ``--workers`` the runs go on worker processes of this machine; with ``--memory`` they keep within that limit,
so that A may be streamed from disk (the way is printed). ``--set`` takes a data set, as Reuters, instead of a
graph of ``--rows`` rows. The iterations are fixed. ``scheduling_share`` is what a study takes beyond its fits, as
a share of them, where they go one after the other.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import snmf_dist
from tests.benchmarks.measure import spread, table, write_json
from tests.benchmarks.sets import load

ITERATIONS = 20
COLUMNS = {
    "graph": "graph",
    "ks": "k",
    "init": "start",
    "place": "where",
    "way": "way",
    "runs": "runs",
    "alone": ("one after the other, s", ".1f"),
    "stacked": ("side by side, s", ".1f"),
    "share": ("share", ".3f"),
    "scheduling_share": ("scheduling, share of the fits", ".3f"),
}


def ring_graph(rows: int, degree: int = 30, seed: int = 0) -> sparse.coo_matrix:
    """A sparse graph whose rows are joined to near ones, as those of a neighbour graph in good order are."""
    random = np.random.default_rng(seed)
    source = np.repeat(np.arange(rows), degree // 2)
    target = (source + random.integers(1, 500, len(source))) % rows
    return sparse.coo_matrix((random.random(len(source)) + 0.1, (source, target)), shape=(rows, rows))


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the runs stacked and one after the other, on the same graph."""
    ks = [int(k) for k in given.ks.split(",")]
    grid: dict[str, Any] = {"ks": ks, "seeds": max(given.runs // len(ks), 1), "inits": given.init, "stop": "paper"}
    grid |= {"tol": 1e-12, "max_iter": ITERATIONS, "evaluate_every": ITERATIONS, "memory_limit": given.memory}
    found: dict[str, Any] = vars(given) | {"alone": [], "stacked": [], "scheduling_share": []}
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if given.workers:
            from distributed import Client, LocalCluster

            place = {"n_workers": given.workers, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
            stack.enter_context(Client(stack.enter_context(LocalCluster(host="127.0.0.1", **place))))
        if given.set:
            graph = load(given.set, str(folder)).graph
        else:
            edges = ring_graph(given.rows, given.degree)
            cut = {"reorder": False, "block_rows": given.block_rows}
            graph = snmf_dist.import_graph(edges, folder / "g.zarr", symmetrize="max", **cut)
        snmf_dist.fit(graph, 4, init=given.init, max_iter=2, stop="paper")  # compiles the kernels
        for turn in range(given.turns):
            for name, at_once in (("alone", 1), ("stacked", None)):
                begin = time.perf_counter()
                study = snmf_dist.fit_many(graph, **grid, out=folder / f"{name}-{turn}", max_at_once=at_once)
                seconds, rows = time.perf_counter() - begin, study.rows
                found[name].append(round(seconds, 2))
                found[f"{name}_side_by_side"] = max(row["stack"] for row in rows)
                found[f"{name}_way"] = study.solution(rows[0]["run_id"]).provenance["way"]
                if name == "alone":
                    found["scheduling_share"].append(round(seconds / sum(row["seconds"] for row in rows) - 1, 4))
    pairs = zip(found["stacked"], found["alone"], strict=True)
    found["share"] = round(float(np.median([stacked / alone for stacked, alone in pairs])), 3)
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--degree", type=int, default=30)
    parser.add_argument("--set")
    parser.add_argument("--ks", default="4,8,12,16")
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--init", default="random")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--memory")
    parser.add_argument(
        "--block-rows", type=int, help="of the store; small ones let A be streamed in little memory"
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json")
    given = parser.parse_args()
    found = measure(given)
    print(json.dumps(found, indent=1))
    if given.json:
        write(given.json, found)


def write(path: str, found: dict[str, Any]) -> None:
    """Add a line to the table in the file."""
    rows = (
        json.loads(Path(path).read_text(encoding="utf-8"))["tables"]["stacks"]["rows"]
        if os.path.exists(path)
        else []
    )
    place = f"{found['workers']} worker processes" if found["workers"] else "one process"
    place += f" of {found['memory']}" if found["memory"] else ""
    graph = found["set"] or f"{found['rows']:,} rows, {found['degree']} edges a row"
    line = {"graph": graph, "ks": found["ks"].replace(",", ", "), "init": found["init"], "place": place}
    line |= {"way": found["stacked_way"], "runs": found["runs"], "share": found["share"]}
    line |= {name: float(np.median(found[name])) for name in ("alone", "stacked", "scheduling_share")}
    line["spread"] = spread(np.array(found["stacked"]) / found["alone"])
    write_json(path, benchmark="batch", tables={"stacks": table(COLUMNS, [*rows, line])})


if __name__ == "__main__":
    main()
