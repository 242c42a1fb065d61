"""Which K `choose_k` suggests: on graphs whose number of groups is known, and on graphs without groups.

    python -m tests.benchmarks.choice [SET ...] [--folder FOLDER] [--seeds 10] [--shortlist 3] [--json FILE]
    python -m tests.benchmarks.choice --cost [SET] [--folder FOLDER] [--turns 3]

On the synthetic sets and the block models the number must be found; on COIL-20 and MNIST it must be among the
three best; on a random graph and a Gaussian blob none may stand out. ``--folder`` keeps the graphs: MNIST's takes
minutes to build. Exits with 1 if one of these does not hold.

``--cost`` compares the time of the screening, and of all of `choose_k`, with that of one default fit at K = 40, in
turns: at most 5 and 15 times as long.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import snmf_dist
from tests.benchmarks.measure import table, write_json
from tests.benchmarks.sets import SYNTHETIC, load

FOUND, AMONG, NONE = "is suggested", "is among three", "none stands out"
SETS = {
    **dict.fromkeys(SYNTHETIC, FOUND),
    "SBM 5000": FOUND,
    "SBM 20000": FOUND,
    "COIL-20": AMONG,
    "MNIST": AMONG,
    "random graph": NONE,
    "blob 2": NONE,
    "blob 10": NONE,
}
COLUMNS: dict[str, dict[str, Any]] = {
    "choice": {
        "set": "set",
        "true": "groups",
        "claim": "claim: the number of groups",
        "k": "suggested",
        "best": "three best",
        "holds": "holds",
    },
    "cost": {
        "set": "set",
        "work": "work",
        "seconds": ("seconds", ".1f"),
        "times": ("times one fit", ".2f"),
        "most": "at most",
        "holds": "holds",
    },
}
MOST = {"fit": None, "screening": 5, "all": 15}
TITLES = {"fit": "one fit at K = 40", "screening": "screening of K = 2 to 40", "all": "all of `choose_k`"}
ROWS, DEGREE = 5000, 12  # of the graphs without groups


def open_set(name: str, folder: str) -> tuple[snmf_dist.GraphStore, int | None]:
    """The graph of a set, and the number of its groups if it has any."""
    if SETS[name] != NONE:
        found = load(name, folder)
        return found.graph, found.k
    path, random = os.path.join(folder, f"{name.replace(' ', '-')}.zarr"), np.random.default_rng(0)
    if os.path.exists(path):
        return snmf_dist.open_graph(path), None
    if name == "random graph":
        ends = random.integers(0, ROWS, (2, ROWS * DEGREE // 2))
        edges = sparse.coo_matrix((np.ones(ends.shape[1]), tuple(ends)), shape=(ROWS, ROWS))
        return snmf_dist.import_graph(edges, path, symmetrize="max", self_loops="drop"), None
    return snmf_dist.build_graph(random.standard_normal((ROWS, int(name.split()[1]))), path), None


def measure(name: str, folder: str, *, seeds: int, shortlist: int) -> dict[str, Any]:
    """What is suggested for a set, and whether it is what is claimed."""
    graph, k = open_set(name, folder)
    begin = time.perf_counter()
    found = snmf_dist.choose_k(graph, range(2, 41), seeds=seeds, shortlist=shortlist)
    seconds = time.perf_counter() - begin
    holds = {FOUND: found.k == k, AMONG: k in found.choice.best[:3], NONE: found.k is None}[SETS[name]]
    best = " ".join(str(K) for K in found.choice.best[:3])
    row = {
        "set": name,
        "true": k,
        "claim": SETS[name],
        "k": found.k,
        "best": best,
        "holds": "yes" if holds else "no",
    }
    print(f"{name:14} true {k}: {found.k}; best {best}; {row['holds']} ({seconds:.1f} s)", flush=True)
    print(f"    {found.reason}", flush=True)
    return {**row, "seconds": seconds}


def cost(name: str, folder: str, *, turns: int) -> list[dict[str, Any]]:
    """Seconds of a fit at K = 40, of the screening of 2 to 40, and of all of it; with the claim of each."""
    graph, _ = open_set(name, folder)
    works: dict[str, Callable[[], Any]] = {
        "fit": lambda: snmf_dist.fit(graph, 40),
        "screening": lambda: snmf_dist.choose_k(graph, range(2, 41), shortlist=0),
        "all": lambda: snmf_dist.choose_k(graph, range(2, 41)),
    }
    snmf_dist.fit(graph, 4, max_iter=2)  # compiles the kernels
    seconds: dict[str, list[float]] = {work: [] for work in works}
    for _ in range(turns):
        for work, do in works.items():
            begin = time.perf_counter()
            do()
            seconds[work].append(time.perf_counter() - begin)
    print(name, graph.n, {work: [round(one, 2) for one in found] for work, found in seconds.items()})
    return [cost_row(name, work, seconds[work], seconds["fit"]) for work in works]


def cost_row(name: str, work: str, seconds: Sequence[float], fit: Sequence[float]) -> dict[str, Any]:
    """What one kind of work took, beside one fit at K = 40, as the median over the turns."""
    times, most = float(np.median(np.array(seconds) / fit)), MOST[work]
    row = {"set": name, "work": TITLES[work], "seconds": float(np.median(seconds)), "times": times, "most": most}
    row["holds"] = "" if most is None else "yes" if times <= most else "no"
    print(f"{TITLES[work]}: {times:.2f} x one fit at K = 40 (at most {most}) {row['holds']}")
    return row


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", help="by default all")
    parser.add_argument("--folder")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--shortlist", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args(given)
    with tempfile.TemporaryDirectory() as temporary, warnings.catch_warnings(action="ignore"):
        ways: dict[str, Any] = {"seeds": options.seeds, "shortlist": options.shortlist}
        folder = options.folder or temporary
        if options.cost:
            rows = cost((options.sets or ["MNIST"])[0], folder, turns=options.turns)
        else:
            rows = [measure(name, folder, **ways) for name in options.sets or SETS]
    if options.json:
        write(options.json, "cost" if options.cost else "choice", rows)
    return int(any(row["holds"] == "no" for row in rows))


def write(path: str, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Put one of the two tables into the file; the other one stays."""
    tables = json.loads(Path(path).read_text(encoding="utf-8"))["tables"] if os.path.exists(path) else {}
    tables[name] = table(COLUMNS[name], rows)
    command = "python -m tests.benchmarks.choice`, and with `--cost"
    write_json(path, benchmark="choice", command=command, tables=tables)


if __name__ == "__main__":
    sys.exit(main())
