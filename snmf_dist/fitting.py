"""From a graph store, checked settings and a plan to a `Solution` in the input's own order."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

import dask
import numpy as np

from snmf_dist import cluster, spares
from snmf_dist.blocks import load_blocks
from snmf_dist.errors import NotConverged, ResultWarning
from snmf_dist.graph.importing import row_bounds
from snmf_dist.graph.store import GraphStore
from snmf_dist.listeners import Listener
from snmf_dist.memory import SLICE, Plan
from snmf_dist.ondisk import check_room
from snmf_dist.result.solution import Solution
from snmf_dist.rows import Rows, in_blocks, load_whole, map_rows, rows_as
from snmf_dist.solve.kernels import cache_dir, compile_all, must_compile, row_labels
from snmf_dist.solve.runs import Earlier, Found, Graph, solve
from snmf_dist.stored import gather_rows, take_rows


def solve_graph(
    store: GraphStore,
    settings: dict[str, Any],
    warm: Solution | np.ndarray | None,
    listeners: Sequence[Listener],
    *,
    plan: Plan,
) -> Solution:
    """Read A where and how the plan says, solve, and bring labels and membership into the input's own order.

    Parameters
    ----------
    settings : dict
        Those of `fit`, checked.
    warm : Solution or ndarray, (n, k), or None
        Where to begin, if that is given.
    """
    begin = time.perf_counter()
    check_room(plan.way.disk)
    _compile_kernels(store.dtype, listeners, plan)
    with _enough_threads(plan):
        A = _load(store, settings, plan)
        top = 1.0 if store.normalize == "ncut" else None
        weights = store.reader("read_weights") if plan.workers else store.read_weights
        graph = Graph(A, store.dtype, weights, top, isolated=store.block["zero_degree"] > 0)
        earlier = _earlier(A, store, warm, settings)
        L = None if warm is None or earlier is not None else _in_graph_order(A, store, warm)
        try:
            found = solve(graph, settings, L=L, earlier=earlier, listeners=listeners)
        finally:
            spares.forget()
            cluster.on_each_worker(spares.forget)
        facts = {
            "place": "cluster" if plan.workers else "threads",
            "way": plan.way.name,
            "planned_bytes": round(plan.way.process),
            "seconds": round(time.perf_counter() - begin, 3),
        }
        return _solution(store, found, settings, facts)


def _compile_kernels(dtype: np.dtype, listeners: Sequence[Listener], plan: Plan) -> None:
    """Have the kernels at hand before work starts, and say so if that takes a while: once on a machine."""
    if plan.workers:
        cluster.on_each_worker(compile_all, dtype)
        return
    if not must_compile():
        return
    for listener in listeners:
        listener.on_wait("compiling the kernels for this machine, once: about 15 seconds")
    seconds = compile_all(dtype)
    if cache_dir() is None:  # they do not work here, which was said
        return
    for listener in listeners:
        listener.on_wait(f"compiled in {seconds:.0f} s; kept in {cache_dir()}")


def _load(store: GraphStore, settings: Mapping[str, Any], plan: Plan) -> Rows:
    way, rows = plan.way, settings["block_rows"]
    given = None if rows is None else row_bounds(store.n, store.nnz, rows)
    if plan.workers:
        bounds = row_bounds(store.n, store.nnz, way.block_rows)
        return load_blocks(store.reader("read_rows"), bounds, store.dtype, held=way.name == "on workers")
    return load_whole(
        store.read_rows,
        store.nnz,
        store.dtype,
        parts=store.bounds,
        bounds=given,
        rows=min(way.block_rows, SLICE),
        held=way.name != "A streamed",
        on_disk=way.name == "on disk",
    )


@contextmanager
def _enough_threads(plan: Plan) -> Iterator[None]:
    """What is streamed gets a thread more than there are cores: one reads while the others work."""
    if plan.workers or plan.way.name == "in memory" or dask.config.get("num_workers", None):
        yield
        return
    with dask.config.set(num_workers=cluster.cores() + 1):
        yield


def _in_graph_order(A: Rows, store: GraphStore, start: Solution | np.ndarray) -> Rows:
    """The start given, in the order and the blocks of the graph store."""
    L = start.membership if isinstance(start, Solution) else start
    if store.reordered:
        L = take_rows(L, store.order)
    return rows_as(A, L, dtype=store.dtype)


def _earlier(A: Rows, store: GraphStore, warm: Any, settings: dict[str, Any]) -> Earlier | None:
    """The run to go on from, if its state is at hand and is one of this solver on this graph."""
    if not isinstance(warm, Solution) or warm.state is None:
        return None
    if warm.provenance["fingerprint"] != store.fingerprint or warm.settings["solver"] != settings["solver"]:
        return None
    state = tuple(rows_as(A, rows, dtype=rows.dtype) for rows in warm.state)
    rho = warm.provenance["rho"] if warm.settings["rho"] == settings["rho"] else None
    return Earlier(state, rho, warm.n_iter, warm.n_products)


@cache
def _versions() -> dict[str, str]:
    """The packages that a result is made with; reading what is installed takes longer than a small fit."""
    packages = ("snmf-dist", "numpy", "scipy", "dask", "distributed", "zarr", "scikit-learn")
    return {name: version(name) for name in packages}


def _solution(graph: GraphStore, found: Found, settings: dict[str, Any], facts: dict[str, Any]) -> Solution:
    """Labels and membership in the input's own order, and how they came about."""
    best = found.best
    L = best.state.L
    labels = gather_rows(map_rows(row_labels, L, width=1, dtype=np.int32)).ravel()
    spectral = None if found.labels is None else gather_rows(found.labels).ravel()
    if graph.reordered:
        back = np.argsort(graph.order)
        labels, L = labels[back], take_rows(L, back)
        spectral = None if spectral is None else spectral[back]
    return Solution(
        labels=labels,
        membership=in_blocks((L,))[0],
        status=best.ended,
        history=best.history,
        settings=settings,
        spectral_labels=spectral,
        provenance={
            "graph": graph.path,
            "fingerprint": graph.fingerprint,
            **facts,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": dict(_versions()),
            "eigenvalues": found.eigenvalues,
            "next_eigenvalue": found.next_eigenvalue,
            "products": found.products,
            "rho": best.rho,
            "runs": [
                {
                    "status": one.ended.name,
                    "iterations": one.history[-1].iteration,
                    "products": one.products - found.before,
                    "captured": one.captured,
                }
                for one in found.outcomes
            ],
        },
        state=in_blocks(best.state),
    )


def warn_of(solution: Solution, made: Mapping[str, Any]) -> None:
    """Warn of what a user should know before using the result."""
    if not solution.status.converged:
        text = f"{solution.status.name} after {solution.n_iter} iterations: {solution.status.value}"
        warnings.warn(text, NotConverged, stacklevel=3)
    components = made.get("components", 0)
    if components > solution.k:
        text = (
            f"the graph falls into {components} components but k is {solution.k}: some share a cluster or "
            "get none; raise k, or build the graph with connect=True"
        )
        warnings.warn(text, ResultWarning, stacklevel=3)
    gaps, values = solution.eigengap, solution.provenance["eigenvalues"]
    if (
        components == 0
        and len(gaps) == solution.k
        and values[-1] > 0.9 * values[0]
        and gaps[-1] < 1e-4 * values[0]
    ):
        text = (
            f"eigenvalues {solution.k} and {solution.k + 1} of A are equal: more parts than k hang together "
            "equally well, and which of them get a cluster is arbitrary; raise k"
        )
        warnings.warn(text, ResultWarning, stacklevel=3)
    empty = int(np.count_nonzero(solution.sizes == 0))
    if empty:
        text = f"{empty} of {solution.k} clusters are empty; try a smaller k or another seed"
        warnings.warn(text, ResultWarning, stacklevel=3)
    if solution.n_unassigned:
        text = (
            f"{solution.n_unassigned} of {len(solution.labels)} rows belong to no cluster (label "
            "-1): they have no edges, or their part of the graph got no cluster; raise k"
        )
        warnings.warn(text, ResultWarning, stacklevel=3)
