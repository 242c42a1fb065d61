"""plan(): the bytes a fit will need and the way of running that fits, before anything runs.

Three ways in one process: everything in memory; A read from its store in every sweep; that, and all other rows on
disk between sweeps. Two on a cluster: A on the workers, or read in every sweep; what Dask's workers cannot hold of
the rest they spill by themselves. What a row costs was counted in the code and checked against measured peaks.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from snmf_dist.errors import DoesNotFit

PROCESS = 430e6  # bytes of a process with numba, scikit-learn and the compiled kernels; measured
AHEAD = 2  # steps under way at a time on a cluster
STATE = {"admm": 6, "apg": 12, "hals": 8}  # n × K arrays at a time in memory, with the L of the best labels
BLOCKS = {"admm": 12, "apg": 14, "hals": 10}  # the same in blocks, which are not written over
TASK = {"admm": 11, "apg": 12, "hals": 8}  # K columns that a task reads and writes
LABELLED = 64 + 144  # bytes a row of sixteen candidate clusterings, and of what their modularity is taken from
LOOKS = 64  # bytes a row of degrees, labels and what is compared with them


@dataclass(frozen=True)
class Way:
    """One way of running.

    Attributes
    ----------
    name : {"in memory", "A streamed", "on disk", "on workers", "A streamed by workers"}
        What is held where.
    process : float
        Bytes the largest process needs at its height.
    block : float
        Bytes of one task.
    block_rows : int
        Rows of a block.
    disk : float
        Bytes of temporary files.
    """

    name: str
    process: float
    block: float
    block_rows: int
    disk: float = 0.0


@dataclass(frozen=True)
class Plan:
    """How a fit will run.

    Attributes
    ----------
    way : Way
        The one chosen: the first that fits.
    ways : tuple of Way
        All there are, the fastest first.
    limit : float or None
        Bytes a process may use.
    workers : int
        Processes; 0 is this one.
    total : float
        Bytes of all processes together.
    """

    way: Way
    ways: tuple[Way, ...]
    limit: float | None
    workers: int

    @property
    def total(self) -> float:
        """Bytes of all processes together."""
        return self.way.process * max(self.workers, 1)

    def lines(self) -> list[str]:
        """The plan as text, a line a way."""
        head = f"{'way':24}{'a process':>12}{'a task':>12}{'rows a block':>14}{'files':>12}"
        found = []
        for way in self.ways:
            fits = "fits" if self.limit is None or way.process <= self.limit else "does not fit"
            mark = "  <- chosen" if way is self.way else ""
            numbers = f"{_text(way.process):>12}{_text(way.block):>12}{way.block_rows:>14}{_text(way.disk):>12}"
            found.append(f"{way.name:24}{numbers}  {fits}{mark}")
        return [head, *found]


def plan(
    n: int,
    nnz: int,
    k: int,
    *,
    dtype: Any = "float32",
    solver: str = "admm",
    init: str = "kmeans",
    n_init: int = 1,
    memory: float | None = None,
    workers: int = 0,
    threads: int = 2,
    halo: float = 1.0,
    block_rows: int | None = None,
    stored_rows: int = 1,
) -> Plan:
    """Predict the memory of a fit, and choose the first way of running that fits.

    Parameters
    ----------
    n, nnz, k : int
        Rows and entries of A, and clusters.
    dtype, solver, init, n_init
        As `fit` has them.
    memory : float, optional
        Bytes that a process may use; without it everything fits.
    workers : int, default 0
        Processes of a cluster; 0 for this process alone.
    threads : int, default 2
        Threads of a process.
    halo : float, default 1
        Rows that a block needs from others, in blocks; a graph store knows (`GraphStore.coupling`).
    block_rows : int, optional
        Rows a block, if that is fixed.
    stored_rows : int, default 1
        Rows a block of the graph store: what is streamed is read in at least such pieces.

    Returns
    -------
    Plan

    Raises
    ------
    DoesNotFit
        No way fits; the message has the numbers.

    Examples
    --------
    >>> plan(1_000_000, 32_000_000, 20).way.name
    'in memory'
    >>> plan(1_000_000, 32_000_000, 20, memory=8e8).way.name
    'on disk'
    """
    size = _Sizes(n, nnz, k, np.dtype(dtype).itemsize, solver, init, n_init, halo, threads)
    if workers:
        rows = block_rows or -(-n // (workers * threads))
        ways = tuple(size.on_workers(name, workers, rows) for name in ("on workers", "A streamed by workers"))
    else:
        streamed = [size.from_disk(name, memory, block_rows, stored_rows) for name in ("A streamed", "on disk")]
        ways = (size.in_memory(block_rows), *streamed)
    for way in ways:
        if memory is None or way.process <= memory:
            return Plan(way, ways, memory, workers)
    least = min(ways, key=lambda way: way.process)
    raise DoesNotFit(
        f"{n} rows, {nnz} entries, k = {k}: a process needs at least {_text(least.process)} ({least.name}) but "
        f"may use {_text(memory or 0)}; of what it needs {_text(PROCESS)} are the process itself and "
        f"{_text(least.block)} each of {threads} tasks: give it more memory, or import the graph again with a "
        "smaller block_rows"
    )


@dataclass(frozen=True)
class _Sizes:
    """Bytes of the parts of a fit."""

    n: int
    nnz: int
    k: int
    item: int
    solver: str
    init: str
    n_init: int
    halo: float
    threads: int

    @property
    def graph(self) -> float:
        """A as it is held."""
        return self.nnz * (self.item + 4) + 8.0 * self.n

    def rows(self, arrays: int, basis: int) -> float:
        """A row of the state in `arrays` arrays, or of the start, whichever is more."""
        state = arrays * self.k * self.n_init * self.item + LOOKS
        start = 0.0
        if self.init != "random":
            start = basis * (self.k + 10) * self.item
        if self.init == "kmeans":
            start = max(start, 2 * self.k * self.item + LABELLED)
        return max(state, start)

    def task(self, rows: int, *, reads: bool) -> float:
        """A task on a block: its rows, those it needs from others, and A's block if it has to be read first."""
        columns = TASK[self.solver] * self.k * self.n_init + (1 + self.halo) * max(
            self.k * self.n_init, self.k + 10
        )
        entries = self.nnz / self.n * (3 * self.item + 12) + 24 if reads else 0
        table = 5.0 * self.n if reads else 0.0  # from numbers in A to numbers in the block
        return rows * (columns * self.item + entries) + table

    def in_memory(self, block_rows: int | None) -> Way:
        rows = min(block_rows or 16_384, self.n)
        work = self.threads * rows * 4.0 * (self.k + 10) * self.item
        total = PROCESS + self.graph + self.n * self.rows(STATE[self.solver], 3) + work
        return Way("in memory", total, work / self.threads, rows)

    def from_disk(self, name: str, memory: float | None, block_rows: int | None, stored_rows: int) -> Way:
        """Blocks as large as fit, in pieces of the store's."""
        held = self.n * (self.rows(BLOCKS[self.solver], 6) if name == "A streamed" else 0.0)
        fixed = PROCESS + held + self.n * (4 * self.halo + 24.0)
        most = max(self.n // (2 * self.threads), 1)
        rows = block_rows or max(min(stored_rows, self.n), 1)
        if block_rows is None and memory is not None:
            one = self.task(1, reads=True) - self.task(0, reads=True)
            room = (memory - fixed) / self.threads - self.task(0, reads=True)
            rows = max(rows, min(int(room / one), most))
        elif block_rows is None:
            rows = max(rows, most)
        task = self.task(rows, reads=True)
        disk = 0.0 if held else self.n * self.rows(BLOCKS[self.solver], 6)
        return Way(name, fixed + self.threads * task, task, rows, disk)

    def on_workers(self, name: str, workers: int, rows: int) -> Way:
        """Each worker holds its share; steps under way have states of their own."""
        share = self.n / workers
        held = share * self.rows(5 * (AHEAD + 1), 6)
        reads = name != "on workers"
        task = self.task(rows, reads=reads)
        graph = 0.0 if reads else self.graph / workers
        packed = share * self.halo * self.k * self.n_init * self.item
        return Way(name, PROCESS + held + graph + packed + self.threads * task, task, rows)


def _text(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
