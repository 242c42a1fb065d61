"""How fast and how big: iterations, time to labels, processes, memory, out of core. A line for each claim.

Run ``python -m tests.benchmarks.speed [names] [--quick] [--folder F] [--json FILE]``. Both sides of a ratio run in
one call and take turns; medians, one BLAS thread. Graphs are made once and kept in the folder (the full size takes
ten minutes for that); ``--quick`` takes a tenth of the rows. Exit code 1 if a claim fails.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

import snmf_dist
from snmf_dist.engine import machine
from snmf_dist.engine.loading import load_local
from snmf_dist.solve.admm import ADMM
from snmf_dist.solve.start import random_start
from tests.benchmarks.graph import make_points
from tests.benchmarks.measure import in_process, spread, table, write_json

K, TURNS = 20, 5
MILLION = 1_000_000  # rows
ITERATING = {"init": "random", "rho": 0.3, "stop": "paper", "tol": 1e-9, "evaluate_every": 10_000}
COLUMNS = {
    "what": "what",
    "found": ("found", ".2f"),
    "spread": ("spread", ".2f"),
    "most": ("aim, at most", "g"),
    "more": "more",
}
_lines: list[dict[str, Any]] = []


class Ratio(float):
    """The ratio of two medians; `spread` has the least and the largest ratio of one turn."""

    spread: dict[str, float]


def claim(what: str, found: float, most: float, more: str = "") -> None:
    """Print a line of the table, and whether it holds."""
    apart = getattr(found, "spread", None)
    found, holds = float(found), bool(found <= most)
    _lines.append({"what": what, "found": found, "spread": apart, "most": most, "holds": holds, "more": more})
    print(f"| {what} | {found:.2f} | <= {most:g} | {'ok' if holds else 'FAILS'} | {more} |", flush=True)


def knn_graph(folder: str, n: int) -> snmf_dist.GraphStore:
    """The kNN graph of `n` points of intrinsic dimension 20 in 64, made once."""
    path = os.path.join(folder, f"knn-{n}.zarr")
    if not os.path.exists(path):
        points = os.path.join(folder, f"{n}.npy")
        np.save(os.path.join(folder, f"{n}-y.npy"), make_points(points, n))
        snmf_dist.build_graph(points, path, exact=False)
        os.remove(points)
    return snmf_dist.open_graph(path)


class Turns(float):
    """The median of what one side returned; `values` has every turn. Divided by another it is a `Ratio`."""

    values: list[float]

    def __truediv__(self, other: Any) -> Any:
        found = float(self) / float(other)
        if not isinstance(other, Turns):
            return found
        ratio = Ratio(found)
        ratio.spread = spread(a / b for a, b in zip(self.values, other.values, strict=True))
        return ratio


def median(values: list[float]) -> Turns:
    """The median of one side's turns."""
    found = Turns(np.median(values))
    found.values = [float(value) for value in values]
    return found


def in_turn(*sides: Callable[[], float], turns: int = TURNS) -> list[Turns]:
    """The median of what each side returns, the sides taking turns."""
    found = [[side() for side in sides] for _ in range(turns)]
    return [median(list(values)) for values in zip(*found, strict=True)]


def seconds(work: Callable[[], Any], times: int = 1) -> float:
    """Seconds of one call, the mean of `times`."""
    begin = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - begin) / times


class Clock(snmf_dist.Listener):
    """When each iteration was done."""

    sees_state = False

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_iteration(self, record: snmf_dist.IterationRecord, state: Any) -> None:
        """Take the time."""
        self.times.append(time.perf_counter())


def fit_iteration(graph: snmf_dist.GraphStore, k: int = K, iterations: int = 32, skip: int = 8) -> float:
    """Seconds of an iteration within `fit`, without the first few and the last, which looks."""
    clock = Clock()
    snmf_dist.fit(graph, k, **ITERATING, max_iter=iterations, listeners=[clock])
    return (clock.times[-2] - clock.times[skip - 1]) / (iterations - 1 - skip)


def bare_loop(graph: snmf_dist.GraphStore, k: int = K) -> Callable[[], float]:
    """Seconds of an iteration of the same kernels in a loop of its own."""
    A = load_local(graph.read_rows, graph.nnz, graph.dtype, parts=graph.bounds)
    sum_A = float(A.block.entries.sum(dtype=float))
    solver = ADMM((0.3,))
    box = [solver.init(A, random_start(A, k, seeds=[0], sum_A=sum_A, dtype=graph.dtype).L)]

    def step() -> None:
        box.append(solver.step(A, box.pop())[0])

    seconds(step, 3)
    return lambda: seconds(step, 10)


def plain_iteration(A: sparse.csr_matrix, k: int = K) -> Callable[[], float]:
    """Seconds of an iteration of Algorithm 2 in SciPy and NumPy, as one would write it."""
    random = np.random.default_rng(0)
    state = [random.random((A.shape[0], k)).astype(A.dtype) for _ in range(2)]
    state += [np.zeros_like(state[0]) for _ in range(2)]
    rho = 0.3

    def step() -> None:
        Y, L, Lam, Gam = state
        X = (A @ Y + rho * L + Lam) @ np.linalg.inv(Y.T @ Y + rho * np.eye(k))
        Y = (A @ X + rho * L + Gam) @ np.linalg.inv(X.T @ X + rho * np.eye(k))
        L = 0.5 * np.maximum(X + Y - (Lam + Gam) / rho, 0)
        state[:] = Y, L, Lam + rho * (L - X), Gam + rho * (L - Y)

    return lambda: seconds(step)


def iteration(folder: str, n: int) -> None:
    """An iteration against plain SciPy, a bare loop, two processes, and the memory's own speed."""
    from distributed import Client, LocalCluster

    graph = knn_graph(folder, n)
    A = sparse.vstack([graph.read_block(i) for i in range(graph.n_blocks)], format="csr").astype(np.float64)
    plain, ours = in_turn(plain_iteration(A), bare_loop(graph), turns=3)
    claim(f"iteration, {n} rows, k = {K}, against plain SciPy float64", ours / plain, 0.25, f"{ours:.2f} s")
    del A

    places = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=2, threads_per_worker=1, **places) as two:

        def on_processes() -> float:
            with Client(two):
                return fit_iteration(graph, iterations=42, skip=16)

        bare, threads, processes = in_turn(bare_loop(graph), lambda: fit_iteration(graph), on_processes)
    claim("fit on threads, against a bare loop over the same kernels", threads / bare, 1.10, f"{threads:.2f} s")
    claim(
        "fit on two worker processes, Dask as it comes, against the same",
        processes / bare,
        1.5,
        f"{processes:.2f} s",
    )

    source = np.ones(50_000_000, dtype=np.float32)
    target = np.empty_like(source)
    copy = 2 * source.nbytes / in_turn(lambda: seconds(lambda: np.copyto(target, source)))[0]
    moved = 2 * (graph.nnz * 8 + graph.n * K * 4 * 7)  # A, five arrays read and two written, a half
    claim("time of an iteration over that of its bytes", bare * copy / moved, 3, f"{copy / 1e9:.1f} GB/s copied")


def overhead(folder: str) -> None:
    """At the size of COIL-20: one block, nothing but overhead."""
    random = np.random.default_rng(0)
    points = random.standard_normal((1440, 16)) + 3 * np.eye(20, 16)[random.integers(0, 20, 1440)]
    graph = snmf_dist.build_graph(points, os.path.join(folder, "small.zarr"), overwrite=True)
    dense = graph.read_block(0).toarray().astype(np.float64)
    numpy, ours = in_turn(plain_iteration(dense), lambda: fit_iteration(graph, iterations=200))
    claim("fit of 1440 rows, against the dense NumPy oracle", ours / numpy, 2, f"{1e3 * ours:.1f} ms an iteration")


def growth(folder: str, sizes: list[int]) -> None:
    """How the time of an iteration grows with the rows."""
    times = in_turn(*(bare_loop(knn_graph(folder, n)) for n in sizes), turns=3)
    exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    each = ", ".join(f"{n}: {1e3 * t:.0f} ms" for n, t in zip(sizes, times, strict=True))
    claim(f"exponent of the growth, {sizes[0]} to {sizes[-1]} rows", exponent, 1.1, each)


def our_labels(path: str, truth: str) -> dict[str, float]:
    """Time to labels by default, from the store."""
    begin, before = time.perf_counter(), time.process_time()
    solution = snmf_dist.fit(path, K)
    spent, cpu = time.perf_counter() - begin, time.process_time() - before
    nmi = snmf_dist.score(solution.labels, np.load(truth)).nmi
    return {"seconds": spent, "cpu": cpu, "nmi": nmi, "planned": solution.provenance["planned_bytes"]}


def rival_labels(path: str, truth: str) -> dict[str, float]:
    """The same by ARPACK and k-means."""
    from scipy.sparse.linalg import eigsh
    from sklearn.cluster import KMeans

    begin, before = time.perf_counter(), time.process_time()
    graph = snmf_dist.open_graph(path)
    A = sparse.vstack([graph.read_block(i) for i in range(graph.n_blocks)], format="csr")
    _, U = eigsh(A, K, tol=1e-3, v0=np.ones(graph.n, dtype=np.float32))
    labels = KMeans(K, n_init=1, random_state=0).fit_predict(U / np.linalg.norm(U, axis=1, keepdims=True))
    spent, cpu = time.perf_counter() - begin, time.process_time() - before
    return {"seconds": spent, "cpu": cpu, "nmi": snmf_dist.score(labels, np.load(truth)[graph.order]).nmi}


def labels(folder: str, n: int) -> None:
    """Time to labels and peak memory, each side in processes of its own."""
    path, truth = knn_graph(folder, n).path, os.path.join(folder, f"{n}-y.npy")
    ours, rival = [], []
    for _ in range(3):
        ours.append(in_process("tests.benchmarks.speed", "our_labels", path=path, truth=truth))
        rival.append(in_process("tests.benchmarks.speed", "rival_labels", path=path, truth=truth))
    one, other = (median([cost.result["seconds"] for cost in side]) for side in (ours, rival))
    scores = [side[0].result["nmi"] for side in (ours, rival)]
    claim(f"time to labels, {n} rows, against eigsh(tol=1e-3) + k-means", one / other, 1, f"{one:.1f} s")
    one, other = (median([cost.result["cpu"] for cost in side]) for side in (ours, rival))
    claim("the same in seconds of the processor", one / other, 1, f"{one:.1f} s")
    claim("NMI with the planted labels, theirs less ours", scores[1] - scores[0], 1e-4, f"{scores[0]:.4f}")
    peak, planned = max(cost.rss for cost in ours), ours[0].result["planned"]
    claim("peak memory, GB", peak / 1e9, 1.2 * max(n / 1e6, 0.35), "of the whole process")
    claim("peak memory over the plan, and the plan over it", max(peak / planned, planned / peak), 1.3)


def limited_fit(path: str, k: int, limit: int | None) -> dict[str, Any]:
    """Some iterations under a memory limit."""
    begin = time.perf_counter()
    found = snmf_dist.fit(path, k, init="random", max_iter=6, memory_limit=limit)
    spent = time.perf_counter() - begin
    return {"seconds": spent, "captured": found.captured, "way": found.provenance["way"]}


def out_of_core(folder: str, n: int, k: int) -> None:
    """A fit in a quarter of the memory that it would take."""
    graph = knn_graph(folder, n)
    limit = int(snmf_dist.plan_fit(graph, k, init="random", memory_limit="1TB").way.process / 4)
    least = snmf_dist.plan_fit(graph, k, init="random", memory_limit="1TB").ways[-1].process
    limit = max(limit, int(least)) if n < 1_000_000 else limit
    small = [
        in_process("tests.benchmarks.speed", "limited_fit", path=graph.path, k=k, limit=limit) for _ in range(2)
    ]
    large = [
        in_process("tests.benchmarks.speed", "limited_fit", path=graph.path, k=k, limit=None) for _ in range(2)
    ]
    one, other = (min(cost.result["seconds"] for cost in side) for side in (small, large))
    claim(f"{n} rows, k = {k}, in a quarter of the memory: time", one / other, 2.5, small[0].result["way"])
    claim("its peak memory over the limit", max(c.rss for c in small) / limit, 1, f"limit {limit / 1e9:.2f} GB")
    differ = abs(small[0].result["captured"] / large[0].result["captured"] - 1)
    claim("difference of the captured energy, relative", differ, 1e-6)


def reordered(folder: str, n: int) -> None:
    """A block model whose rows come in random order, imported as it is and re-ordered."""
    random = np.random.default_rng(0)
    y, edges = random.integers(0, 20, n), 10 * n
    source = random.integers(0, n, edges)
    members = np.argsort(y, kind="stable")
    starts = np.searchsorted(y[members], np.arange(21))
    sizes = np.diff(starts)[y[source]]
    inside = members[starts[y[source]] + (random.random(edges) * sizes).astype(np.int64)]
    target = np.where(random.random(edges) < 0.4, random.integers(0, n, edges), inside)
    W = sparse.coo_matrix((np.ones(edges), (source, target)), shape=(n, n)).tocsr()
    settings = {"symmetrize": "max", "self_loops": "drop", "overwrite": True}
    stores = [
        snmf_dist.import_graph(W, os.path.join(folder, f"sbm-{reorder}.zarr"), reorder=reorder, **settings)
        for reorder in (False, "auto")
    ]
    as_it_came, ours = in_turn(*map(bare_loop, stores), turns=3)
    text = stores[1].block["made"]["order"]
    claim(f"SBM of {n} rows in random order, re-ordered, against as it came", ours / as_it_came, 1.05, str(text))


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    names = ("iteration", "overhead", "growth", "labels", "out_of_core", "reordered")
    options.add_argument("names", nargs="*", help=f"some of: {' '.join(names)}")
    options.add_argument("--quick", action="store_true", help="a tenth of the rows")
    options.add_argument("--folder", help="where graphs are kept from one run to the next")
    options.add_argument("--json", help="write the table here too, as docs/render.py reads it")
    given = options.parse_args()
    million = MILLION // 10 if given.quick else MILLION
    work = {
        "iteration": lambda: iteration(folder, million),
        "overhead": lambda: overhead(folder),
        "growth": lambda: growth(folder, [million // 8, million // 2, million, 2 * million]),
        "labels": lambda: labels(folder, million),
        "out_of_core": lambda: out_of_core(folder, 2 * million, 100),
        "reordered": lambda: reordered(folder, million),
    }
    warnings.simplefilter("ignore")
    print(f"| what ({machine.cores()} cores) | found | must be | | |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made, machine.one_blas_thread():
        folder = given.folder or made
        for name in given.names or names:
            work[name]()
    if given.json:
        command = " ".join(["python -m tests.benchmarks.speed", *given.names, *["--quick"] * given.quick])
        write_json(given.json, benchmark="speed", command=command, tables={"claims": table(COLUMNS, _lines)})
    sys.exit(0 if all(line["holds"] for line in _lines) else 1)


if __name__ == "__main__":
    main()
