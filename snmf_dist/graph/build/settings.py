"""The settings of a build, checked, and what follows from them and from the memory there is."""

import math
from typing import Any

from snmf_dist.engine import client
from snmf_dist.engine.machine import cores
from snmf_dist.errors import InputError
from snmf_dist.validation import choice, positive_number, whole_number

EXACT_BELOW = 50_000  # rows that are searched exactly as a whole, without compiling anything
SHARED_ABOVE = 20_000  # rows that are worth a cell for each worker
BLOCK_BYTES = 250e6  # a task on a block of two million entries or of points needs at its height; measured
PROCESS_BYTES = 700e6  # of a process with numba, pynndescent and what they compiled; measured


def check_settings(source: Any, **given: Any) -> dict[str, Any]:
    """Check the settings of `build_graph` against the points, and fill in what follows from n."""
    n, d = source.shape
    for name, low in {"neighbors": 1, "scale_neighbor": 1, "pca": 1, "seed": 0, "block_rows": 1}.items():
        if given[name] is not None or name in ("scale_neighbor", "seed"):
            given[name] = whole_number(name, given[name], low, 2**31 - 1 if name == "seed" else None)
    if given["neighbors"] is not None and given["neighbors"] >= n:
        raise InputError(f"neighbors is {given['neighbors']}; expected less than the number of points, {n}")
    choice("metric", given["metric"], ("euclidean", "cosine"))
    if given["pca"] is not None and given["pca"] >= min(n, d):
        raise InputError(f"pca is {given['pca']}; expected less than the points' rows and columns, {n} and {d}")
    if given["pca"] is not None and getattr(source, "is_sparse", False):
        raise InputError("pca needs dense points; leave it out for a sparse matrix")
    given["replication"] = positive_number("replication", given["replication"])
    if given["replication"] < 1:
        raise InputError(f"replication is {given['replication']}; expected at least 1")
    given["neighbors"] = min(given["neighbors"] or int(math.log2(n)) + 1, n - 1)
    given["scale_neighbor"] = min(given["scale_neighbor"], n - 1)
    given["exact"] = n < EXACT_BELOW if given["exact"] is None else given["exact"]
    choice("exact", given["exact"], (True, False))
    entries = source.array.nnz / n if getattr(source, "is_sparse", False) and hasattr(source, "array") else d
    return {"n": n, "d": d, "entries": round(entries, 1), **given}


def _memory(limit: int | str | None) -> float:
    found = client.memory_limit(limit)
    least = 1.2 * PROCESS_BYTES
    if limit is not None and found < least:
        raise InputError(
            f"memory_limit is {found / 1e6:.0f} MB; expected at least {least / 1e6:.0f} MB, "
            f"of which {PROCESS_BYTES / 1e6:.0f} MB are numba, pynndescent and what they compile"
        )
    return found


def choose_cells(settings: dict[str, Any], memory_limit: int | str | None) -> dict[str, Any]:
    """How many cells, threads for each, and tasks at once, so that a process stays within its memory.

    NNDescent needs the point twice and about 50 bytes a list entry for each row (measured).
    """
    limit = _memory(memory_limit)
    n, d = settings["n"], settings["pca"] or settings["entries"]
    needed = n * (8 * d + 50 * (settings["neighbors"] + 6))
    room = max(limit - PROCESS_BYTES, 0.1 * limit)
    cells = 1 if needed <= room else math.ceil(settings["replication"] * needed / room)
    if n > SHARED_ABOVE:
        cells = max(cells, client.n_workers())
    at_once = max(1, min(cores(), int(room // BLOCK_BYTES)))
    return {"cells": cells, "threads": client.worker_threads(), "at_once": at_once}
