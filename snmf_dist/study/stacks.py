"""Stacks: runs on one graph that go side by side and share every pass over A."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from snmf_dist.api import plan_fit
from snmf_dist.assembling import save_solution
from snmf_dist.engine import client as cluster
from snmf_dist.engine import machine
from snmf_dist.engine.plan import Plan
from snmf_dist.errors import DoesNotFit
from snmf_dist.fitting import solve_graph, solve_stack_once
from snmf_dist.gauges import Gauges
from snmf_dist.graph.store import GraphStore
from snmf_dist.keeping import open_keeper
from snmf_dist.listeners import Guarded, Listener
from snmf_dist.result.files import check_room
from snmf_dist.result.records import Status
from snmf_dist.solve.solvers import SOLVERS
from snmf_dist.solve.stack import MAY_DIFFER, can_stack
from snmf_dist.study.folder import StudyFolder
from snmf_dist.study.spec import Run, StudyGraph

WIDEST = 16  # runs in a stack, at most: beyond, the columns of a row no longer stay in a core's cache


def make_stacks(
    runs: Sequence[Run], graphs: Mapping[str, StudyGraph], how: Mapping[str, Any], limit: int | None
) -> list[list[Run]]:
    """Runs in the order given, each with those that can go side by side with it and still fit as it does alone.

    Parameters
    ----------
    how : mapping
        Of the settings of `fit`, those that do not change a result.
    limit : int or None
        Runs in a stack, at most.
    """
    stacks: list[list[Run]] = []
    alone: dict[Any, Any] = {}

    def place(run: Run) -> Any:
        """Where a run goes alone, and in which blocks: sums are added up in them."""
        key = (run.graph, *(str(value) for name, value in run.settings.items() if name != "seed"))
        if key not in alone:
            plan = plan_stack(graphs[run.graph].store, [run], how)
            alone[key] = None if plan is None else (plan.way.name, plan.way.block_rows)
        return alone[key]

    for run in runs:
        its = place(run)  # None if it does not fit: it then fails alone, by name
        for stack in stacks if its else ():
            if len(stack) < (limit or WIDEST) and _alike(stack[0], run) and place(stack[0]) == its:
                plan = plan_stack(graphs[run.graph].store, [*stack, run], how, its[1])
                if plan is not None and plan.way.name == its[0]:
                    stack.append(run)
                    break
        else:
            stacks.append([run])
    return stacks


def _alike(one: Run, other: Run) -> bool:
    """Whether two runs may go side by side: on one graph, with settings that differ in k and seed alone."""
    names = {*one.settings, *other.settings} - set(MAY_DIFFER)
    same = all(one.settings.get(name) == other.settings.get(name) for name in names)
    return one.graph == other.graph and can_stack(one.settings) and same


def plan_stack(
    store: GraphStore, runs: Sequence[Run], how: Mapping[str, Any], block_rows: int | None = None
) -> Plan | None:
    """How a stack would run, as if all its runs were as wide as the widest; None if it does not fit.

    Parameters
    ----------
    block_rows : int, optional
        Rows a block; by default as the settings of the runs say.
    """
    first = runs[0].settings
    try:
        return plan_fit(
            store,
            max(run.settings["k"] for run in runs),
            solver=first["solver"],
            init=first["init"],
            n_init=len(runs),
            basis_columns=first["basis_columns"],
            memory_limit=how.get("memory_limit"),
            block_rows=block_rows or first["block_rows"],
        )
    except DoesNotFit:
        return None


def stack_id(runs: Sequence[Run]) -> str:
    """Name a stack by its runs."""
    return "stack-" + hashlib.sha256(" ".join(run.run_id for run in runs).encode()).hexdigest()[:16]


def fit_stack(
    store: GraphStore,
    runs: Sequence[Run],
    folder: StudyFolder,
    how: Mapping[str, Any],
    listeners: Sequence[Listener],
    wanted: Collection[str],
) -> None:
    """Solve the runs of a stack, and write the results of those `wanted`; what was interrupted is continued."""
    single = plan_stack(store, runs[:1], how)
    assert single is not None, "stacks are made of runs that fit"
    plan = plan_stack(store, runs, how, single.way.block_rows)  # its blocks: sums are added up in them
    assert plan is not None, "stacks are made so that they fit"
    first = runs[0].settings
    joint = {"stack": [dict(run.settings) for run in runs], "solver": first["solver"], "k": first["k"]}
    joint |= {"block_rows": first["block_rows"]}
    place = folder.result(stack_id(runs)).removesuffix(".zarr")
    every = how.get("checkpoint_every", "auto")
    saving = {"save_state": how.get("save_state", False), "overwrite": True, "options": folder.options}
    state = SOLVERS[first["solver"]].arrays * saving["save_state"]
    check_room(folder.result("of-all"), store.n, sum(run.settings["k"] for run in runs), store.dtype, state=state)
    keeper = open_keeper(store.fingerprint, joint, place, every=every, options=folder.options)
    guarded: list[Listener] = [Guarded(listener) for listener in listeners]
    saved, status, client = False, None, cluster.current_client()
    if client is not None and plan.workers:
        guarded.append(Gauges(client, place, keeper))

    def once(*given: Any, **ways: Any) -> Status:
        solutions = solve_stack_once(*given, **ways)
        for run, solution in zip(runs, solutions, strict=True):
            if run.run_id in wanted:
                save_solution(folder.result(run.run_id), saving, solution)
        return solutions[0].status

    for listener in guarded:
        listener.on_start(joint)
    try:
        losses = nullcontext() if client is None else cluster.explain_losses()
        with machine.one_blas_thread(), losses:
            status = solve_graph(store, joint, None, guarded, plan=plan, keeper=keeper, once=once)
        saved = True
    finally:
        keeper.close(done=saved, results=[folder.result(run_id) for run_id in wanted])
        for listener in guarded:
            listener.on_end(status)
