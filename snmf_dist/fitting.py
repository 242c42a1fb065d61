"""From a graph store, checked settings and a plan to a `Solution` in the input's own order."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import numpy as np

from snmf_dist.engine.client import current_client, explain_losses
from snmf_dist.engine.disk import check_room
from snmf_dist.engine.loading import load_local
from snmf_dist.engine.machine import cores, given_threads, using_threads
from snmf_dist.engine.plan import SLICE, Plan
from snmf_dist.engine.rows import Graph, Rows, rebuild
from snmf_dist.errors import RowsLost, StoreCorrupt, WorkersJoined, WorkLost
from snmf_dist.graph.store import GraphStore
from snmf_dist.graph.store.layout import row_bounds
from snmf_dist.keeping import CheckpointKeeper, restored
from snmf_dist.listeners import Listener
from snmf_dist.result.checkpoints import Checkpoint
from snmf_dist.result.records import Status
from snmf_dist.result.solution import Solution
from snmf_dist.solve.basis import Basis
from snmf_dist.solve.kernels import cache_dir, compile_all, must_compile, row_labels
from snmf_dist.solve.parts import PartFacts, find_parts
from snmf_dist.solve.pipeline import Earlier, Found, GraphFacts, Resumed, solve
from snmf_dist.solve.solvers import SOLVERS

RESTARTS = 10  # times that a run starts again after workers were lost, without a new checkpoint in between


def solve_graph(
    store: GraphStore,
    settings: dict[str, Any],
    warm: Solution | np.ndarray | None,
    listeners: Sequence[Listener],
    *,
    plan: Plan,
    keeper: CheckpointKeeper,
    save: Callable[[Solution], Solution] | None = None,
) -> Solution:
    """Read A where and how the plan says, solve, and bring labels and membership into the input's own order.

    A run whose rows were lost with a worker continues from its last checkpoint, or starts again if there is none,
    on the workers that are left: the blocks stay as they are, so the answer is the same to the last bit.

    Parameters
    ----------
    store : GraphStore
        The graph.
    settings : dict
        The settings of `fit`, checked.
    warm : Solution or ndarray, (n, k), or None
        Where to begin, if that is given.
    listeners : sequence of Listener
        Told of each iteration, and of what takes a while.
    plan : Plan
        How to run.
    keeper : CheckpointKeeper
        Writes the checkpoints, and has the one to continue from.
    save : callable, optional
        Saves the solution, and returns it as it was saved. A worker that is lost meanwhile costs no more than one
        that is lost before. The solution of a run that ran out of time is not saved.
    """
    begun = time.perf_counter()
    check_room(plan.way.disk)
    _compile_kernels(store.dtype, listeners, plan)
    in_vain = 0
    while True:
        saved = keeper.saved
        try:
            with _threads(plan), explain_losses() if plan.workers else nullcontext():
                found = _solve_once(store, settings, warm, listeners, plan=plan, begun=begun, keeper=keeper)
                return found if save is None or found.status is Status.OUT_OF_TIME else save(found)
        except WorkersJoined:
            for listener in listeners:
                listener.on_wait("workers have joined; the run continues from its checkpoint on all of them")
        except RowsLost as error:
            in_vain = 0 if keeper.saved > saved else in_vain + 1
            keeper.lost()
            if in_vain > RESTARTS:
                raise WorkLost(
                    f"workers were lost {in_vain} times without a checkpoint in between, at last: {error}; most "
                    "often they run out of memory: give them more, or run on machines that stay up"
                ) from error
            where = "continues from its last checkpoint" if keeper.latest() else "starts again"
            for listener in listeners:
                listener.on_wait(f"a worker was lost ({error}); the run {where} on the workers that are left")
        gc.collect()  # what the attempt held on the workers goes with it


def _solve_once(
    store: GraphStore,
    settings: dict[str, Any],
    warm: Solution | np.ndarray | None,
    listeners: Sequence[Listener],
    *,
    plan: Plan,
    begun: float,
    keeper: CheckpointKeeper,
) -> Solution:
    checkpoint = keeper.latest()
    A = _load(store, settings, plan, None if checkpoint is None else checkpoint.bounds)
    try:
        keeper.attach(A)
        top = 1.0 if store.normalize == "ncut" and store.tau == 0 else None
        weights = store.reader("read_weights") if plan.workers else store.read_weights
        parts = _parts(store, settings, remote=bool(plan.workers))
        isolated = store.block["zero_degree"] > 0
        graph = GraphFacts(A, store.dtype, weights, top, isolated=isolated, parts=parts)
        resume = None if checkpoint is None else _restore(keeper, checkpoint, A, settings, listeners)
        if resume is not None:
            for listener in listeners:
                listener.on_wait(f"continuing after iteration {resume.progress.iteration}, from a checkpoint")
            found = solve(graph, settings, listeners=listeners, resume=resume, keeper=keeper)
        else:
            earlier = _earlier(A, store, warm, settings)
            L = None if warm is None or earlier is not None else _in_graph_order(A, store, warm)
            found = solve(graph, settings, L=L, earlier=earlier, listeners=listeners, keeper=keeper)
        facts = {
            "place": "cluster" if plan.workers else "threads",
            "way": plan.way.name,
            "planned_bytes": round(plan.way.process),
            "seconds": round(time.perf_counter() - begun, 3),
            "components": store.components,
            "isolated": store.block["zero_degree"],
            "tau": store.tau,
            "built": store.recall is not None,
        }
        if parts is not None:
            facts |= {"parts": parts.count, "specks": parts.specks, "speck_rows": parts.speck_rows}
            facts["speck_limit"] = parts.limit
        return _solution(A, store, found, settings, facts)
    finally:
        A.close()


def _restore(
    keeper: CheckpointKeeper,
    checkpoint: Checkpoint,
    A: Graph,
    settings: Mapping[str, Any],
    listeners: Sequence[Listener],
) -> Resumed:
    """Read a checkpoint back; if its files are damaged, the one before it."""
    try:
        return Resumed(*restored(checkpoint, A, SOLVERS[settings["solver"]]))
    except StoreCorrupt as error:
        if not keeper.pass_over(checkpoint):
            raise
        older = keeper.latest()
        assert older is not None, "there is another one"
        if not np.array_equal(older.bounds, checkpoint.bounds):
            raise
        for listener in listeners:
            listener.on_wait(f"the newest checkpoint is damaged ({error}); the one before it is used")
        return _restore(keeper, older, A, settings, listeners)


def _compile_kernels(dtype: np.dtype, listeners: Sequence[Listener], plan: Plan) -> None:
    """Have the kernels at hand before work starts, and say so if that takes a while: once on a machine."""
    if plan.workers or not must_compile():
        return
    for listener in listeners:
        listener.on_wait("compiling the kernels for this machine, once: about 20 seconds")
    seconds = compile_all(dtype)
    for listener in listeners:
        listener.on_wait(f"compiled in {seconds:.0f} s; kept in {cache_dir() or 'the memory of this process'}")


def _load(store: GraphStore, settings: Mapping[str, Any], plan: Plan, bounds: np.ndarray | None = None) -> Graph:
    """A where and how the plan says; in the blocks of a checkpoint, if there is one."""
    way, rows = plan.way, settings["block_rows"]
    if plan.workers:
        from snmf_dist.engine.cluster import ClusterGraph  # brings distributed along

        return ClusterGraph(
            current_client(),
            store.reader("read_rows"),
            row_bounds(store.n, store.nnz, way.block_rows) if bounds is None else bounds,
            store.dtype,
            held=way.name == "on workers",
            prepare=partial(compile_all, store.dtype),
        )
    if bounds is None and rows is not None:
        bounds = row_bounds(store.n, store.nnz, rows)
    return load_local(
        store.read_rows,
        store.nnz,
        store.dtype,
        parts=store.bounds,
        bounds=bounds,
        rows=min(way.block_rows, SLICE),
        held=way.name != "A streamed",
        on_disk=way.name == "on disk",
    )


def _threads(plan: Plan) -> Any:
    """What is streamed gets a thread more than there are cores: one reads while the others work."""
    if plan.workers or plan.way.name == "in memory" or given_threads():
        return nullcontext()
    return using_threads(cores() + 1)


def _parts(store: GraphStore, settings: Mapping[str, Any], *, remote: bool) -> PartFacts | None:
    """The parts of the graph that are clustered; None if it hangs together, or if they were not stored."""
    component = store.component
    if component is None:
        return None
    read = store.reader("read_component") if remote else store.read_component
    isolated = store.block["zero_degree"]
    return find_parts(read, component, isolated=isolated, K=settings["k"], specks=settings["specks"])


def _spectrum(basis: Basis | None) -> dict[str, Any]:
    """What a result tells of the eigenvectors that its start was made from."""
    if basis is None:
        return {"eigenvalues": [], "next_eigenvalue": None}
    return {
        "eigenvalues": basis.values.tolist(),
        "next_eigenvalue": basis.next_value,
        "upper_eigenvalues": basis.upper.tolist(),
        "basis_residual": basis.residual,
        "basis_converged": basis.converged,
        "basis_products": basis.products,
    }


def _in_graph_order(A: Graph, store: GraphStore, start: Solution | np.ndarray) -> Rows:
    """The start given, in the order and the blocks of the graph store."""
    L = start.membership if isinstance(start, Solution) else start
    return A.rows_from(L, dtype=store.dtype, order=store.order if store.reordered else None)


def _earlier(A: Graph, store: GraphStore, warm: Any, settings: dict[str, Any]) -> Earlier | None:
    """The run to resume, if its state is at hand and is one of this solver on this graph."""
    if not isinstance(warm, Solution) or warm.state is None:
        return None
    if warm.provenance["fingerprint"] != store.fingerprint or warm.settings["solver"] != settings["solver"]:
        return None
    state = tuple(A.rows_from(rows, dtype=rows.dtype) for rows in warm.state)
    rho = warm.provenance["rho"] if warm.settings["rho"] == settings["rho"] else None
    return Earlier(state, rho, warm.n_iter, warm.n_products)


@cache
def _versions() -> dict[str, str]:
    """The packages that a result is made with; reading what is installed takes longer than a small fit."""
    packages = ("snmf-dist", "numpy", "scipy", "dask", "distributed", "zarr", "scikit-learn")
    return {name: version(name) for name in packages}


def _solution(
    A: Graph, graph: GraphStore, found: Found, settings: dict[str, Any], facts: dict[str, Any]
) -> Solution:
    """Labels and membership in the input's own order, and how they came about."""
    best = found.best
    L = best.state.L
    labels = A.fetch(A.map(row_labels, L, width=1, dtype=np.int32)).ravel()
    spectral = None if found.labels is None else A.fetch(found.labels).ravel()
    membership = L.array
    if graph.reordered:
        back = np.argsort(graph.order)
        labels, membership = labels[back], A.reorder(L, back)
        spectral = None if spectral is None else spectral[back]
    return Solution(
        labels=labels,
        membership=membership,
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
            **_spectrum(found.basis),
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
        state=rebuild(best.state, [rows.array for rows in best.state]),
    )
