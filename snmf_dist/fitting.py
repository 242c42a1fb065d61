"""From a graph store, checked settings and a plan to a `Solution` in the input's own order."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from snmf_dist.assembling import run_facts, to_solution
from snmf_dist.engine.client import current_client, explain_losses
from snmf_dist.engine.disk import check_room
from snmf_dist.engine.loading import load_local
from snmf_dist.engine.machine import cores, given_threads, using_threads
from snmf_dist.engine.plan import SLICE, Plan
from snmf_dist.engine.rows import Graph, Rows
from snmf_dist.errors import RowsLost, StoreCorrupt, WorkersJoined, WorkLost
from snmf_dist.graph.store import GraphStore
from snmf_dist.graph.store.layout import row_bounds
from snmf_dist.keeping import CheckpointKeeper, restored
from snmf_dist.listeners import Listener, tell_phase
from snmf_dist.result.checkpoints import Checkpoint
from snmf_dist.result.records import Status
from snmf_dist.result.solution import Solution
from snmf_dist.solve.kernels import cache_dir, compile_all, must_compile
from snmf_dist.solve.parts import PartFacts, find_parts
from snmf_dist.solve.pipeline import Earlier, GraphFacts, Resumed, solve
from snmf_dist.solve.solvers import SOLVERS
from snmf_dist.solve.stack import solve_stack

NCUT_LIMIT = 1 + 1e-5  # no eigenvalue of a graph normalised by its degrees is larger; its entries are rounded


def solve_graph(
    store: GraphStore,
    settings: dict[str, Any],
    warm: Solution | np.ndarray | None,
    listeners: Sequence[Listener],
    *,
    plan: Plan,
    keeper: CheckpointKeeper,
    save: Callable[[Solution], Solution] | None = None,
    once: Any = None,
) -> Any:
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
        Called at each iteration, and before what takes a while.
    plan : Plan
        How to run.
    keeper : CheckpointKeeper
        Writes the checkpoints, and has the one to continue from.
    save : callable, optional
        Saves the solution, and returns it as it was saved. A worker that is lost meanwhile costs no more than one
        that is lost before. The solution of a run that ran out of time is not saved.
    once : callable, optional
        What solves; by default `_solve_once`, which returns a `Solution`.
    """
    once = once or _solve_once
    begun = time.perf_counter()
    check_room(plan.way.disk)
    _compile_kernels(store.dtype, listeners, plan)
    while True:
        try:
            with _threads(plan), explain_losses() if plan.workers else nullcontext():
                found = once(store, settings, warm, listeners, plan=plan, begun=begun, keeper=keeper)
                return found if save is None or found.status is Status.OUT_OF_TIME else save(found)
        except WorkersJoined:
            for listener in listeners:
                listener.on_wait("workers have joined; the run continues from its checkpoint on all of them")
        except RowsLost as error:
            keeper.lost()
            if keeper.gives_up():
                raise WorkLost(
                    f"workers were lost {keeper.in_vain} times without a checkpoint in between, at last: {error}; "
                    "most often they run out of memory: give them more, or run on machines that stay up"
                ) from error
            where = "continues from its last checkpoint" if keeper.latest() else "starts again"
            for listener in listeners:
                listener.on_wait(f"a worker was lost ({error}); the run {where} on the workers that are left")
        gc.collect()  # what the attempt held on the workers goes with it


@contextmanager
def loaded(
    store: GraphStore,
    settings: Mapping[str, Any],
    *,
    plan: Plan,
    change: Callable[[Callable[[int, int], Any]], Callable[[int, int], Any]] | None = None,
) -> Iterator[GraphFacts]:
    """The graph, read where and how the plan says, for work that is not a fit.

    Parameters
    ----------
    settings : mapping
        ``k``, ``block_rows`` and ``specks``, as in `fit`.
    change : callable, optional
        Makes another reader of rows of A from that of the store. The pattern of the entries must stay.
    """
    _compile_kernels(store.dtype, (), plan)
    with _threads(plan), explain_losses() if plan.workers else nullcontext():
        A = _load(store, settings, plan, change=change)
        try:
            yield _graph_facts(A, store, settings, plan)
        finally:
            A.close()


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
    tell_phase(listeners, "reading")
    A = _load(store, settings, plan, None if checkpoint is None else checkpoint.bounds)
    try:
        keeper.attach(A)
        graph = _graph_facts(A, store, settings, plan)
        resume = None if checkpoint is None else _restore(keeper, checkpoint, A, settings, listeners)
        if resume is not None:
            for listener in listeners:
                listener.on_wait(f"continuing after iteration {resume.progress.iteration}, from a checkpoint")
            found = solve(graph, settings, listeners=listeners, resume=resume, keeper=keeper)
        else:
            earlier = _earlier(A, store, warm, settings)
            L = None if warm is None or earlier is not None else _in_graph_order(A, store, warm)
            found = solve(graph, settings, L=L, earlier=earlier, listeners=listeners, keeper=keeper)
        tell_phase(listeners, "saving")
        return to_solution(A, store, found, settings, run_facts(store, graph.parts, plan, begun))
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


def solve_stack_once(
    store: GraphStore,
    settings: dict[str, Any],
    warm: None,
    listeners: Sequence[Listener],
    *,
    plan: Plan,
    begun: float,
    keeper: CheckpointKeeper,
) -> list[Solution]:
    """Solve runs side by side, as `_solve_once` does one: ``settings["stack"]`` has the settings of each."""
    checkpoint, many = keeper.latest(), settings["stack"]
    tell_phase(listeners, "reading")
    A = _load(store, settings, plan, None if checkpoint is None else checkpoint.bounds)
    try:
        keeper.attach(A)
        graphs = [_graph_facts(A, store, one, plan) for one in many]
        resume = None if checkpoint is None else _restore(keeper, checkpoint, A, settings, listeners)
        found = solve_stack(graphs, many, listeners=listeners, resume=resume, keeper=keeper)
        tell_phase(listeners, "saving")
        return [
            to_solution(A, store, of_one, one, run_facts(store, graph.parts, plan, begun))
            for of_one, one, graph in zip(found, many, graphs, strict=True)
        ]
    finally:
        A.close()


def _graph_facts(A: Graph, store: GraphStore, settings: Mapping[str, Any], plan: Plan) -> GraphFacts:
    """What solving needs to know of the graph."""
    top = 1.0 if store.normalize == "ncut" and store.tau == 0 else None
    weights = store.reader("read_weights") if plan.workers else store.read_weights
    parts = _parts(store, settings, remote=bool(plan.workers))
    isolated = store.block["zero_degree"] > 0
    limit = NCUT_LIMIT if store.normalize == "ncut" else None
    return GraphFacts(A, store.dtype, weights, top, isolated=isolated, parts=parts, limit=limit)


def _compile_kernels(dtype: np.dtype, listeners: Sequence[Listener], plan: Plan) -> None:
    """Have the kernels at hand before work starts, and say so if that takes a while: once on a machine."""
    if plan.workers or not must_compile():
        return
    for listener in listeners:
        listener.on_wait("compiling the kernels for this machine, once: about 20 seconds")
    seconds = compile_all(dtype)
    for listener in listeners:
        listener.on_wait(f"compiled in {seconds:.0f} s; kept in {cache_dir() or 'the memory of this process'}")


def _load(
    store: GraphStore,
    settings: Mapping[str, Any],
    plan: Plan,
    bounds: np.ndarray | None = None,
    *,
    change: Callable[..., Any] | None = None,
) -> Graph:
    """A where and how the plan says; in the blocks of a checkpoint, if there is one."""
    way, rows = plan.way, settings["block_rows"]
    read = store.reader("read_rows") if plan.workers else store.read_rows
    read = read if change is None else change(read)
    if plan.workers:
        from snmf_dist.engine.cluster import ClusterGraph  # brings distributed along

        return ClusterGraph(
            current_client(),
            read,
            row_bounds(store.n, store.nnz, way.block_rows) if bounds is None else bounds,
            store.dtype,
            held=way.name == "on workers",
            prepare=partial(compile_all, store.dtype),
        )
    if bounds is None and rows is not None:
        bounds = row_bounds(store.n, store.nnz, rows)
    return load_local(
        read,
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
    sizes = store.component_sizes
    if sizes is None:
        return None
    read = store.reader("read_component") if remote else store.read_component
    isolated = store.block["zero_degree"]
    return find_parts(read, sizes, isolated=isolated, K=settings["k"], specks=settings["specks"])


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
