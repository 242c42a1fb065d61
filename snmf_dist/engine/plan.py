"""plan(): the bytes a fit will need and the way of running that fits, before anything runs.

Three ways in one process: everything in memory; A read from its store in every sweep; A and all other rows in
temporary files between tasks. Two on a cluster: A on the workers, or read in every sweep; what Dask's workers
cannot hold of the rest they spill by themselves. What a row costs was counted in the code and checked against
measured peaks.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from snmf_dist.card import card
from snmf_dist.errors import DoesNotFit

PROCESS = 340e6  # bytes of a process that has just compiled its kernels; 220e6 if they were kept. Measured
SLICE = 16_384  # rows worked on at a time: 20 columns of them stay in a core's second cache
STEPS_AHEAD = 4  # steps under way at a time on a cluster
LEAST_ROWS = 1024  # of a slice on disk
READ_AHEAD = 65_536  # bytes around a row on disk that the system brings into memory with it
COMPARED = 144  # bytes a row of what the modularity of sixteen clusterings is taken from
LABELLED = 64 + COMPARED  # the same, with the clusterings
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

    def _repr_html_(self) -> str:
        return card("Plan", self._facts)

    def _facts(self) -> dict[str, str]:
        """What a notebook shows."""
        way = self.way
        return {
            "way": way.name,
            "processes": str(max(self.workers, 1)),
            "a process": _text(way.process) + ("" if self.limit is None else f" of {_text(self.limit)}"),
            "a task": f"{_text(way.block)}, {way.block_rows:,} rows",
            "temporary files": _text(way.disk),
        }

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
    arrays: int = 5,
    task_columns: int = 11,
    init: str = "kmeans",
    n_init: int = 1,
    basis_columns: int | None = None,
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
    n : int
        Rows of A.
    nnz : int
        Entries of A.
    k : int
        Number of clusters.
    arrays : int
        How many arrays the solver holds, as `problem.Solver` says; by default those of ADMM.
    task_columns : int
        How many columns a task of the solver touches, as `problem.Solver` says; by default those of ADMM.
    dtype, init, n_init, basis_columns
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
        Rows a block of the graph store, which is read in such pieces.

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
    stored_rows = min(stored_rows, n)
    size = _Sizes(
        n, nnz, k, np.dtype(dtype).itemsize, arrays, task_columns, init, n_init, halo, stored_rows, threads
    )
    size = replace(size, wide=max(k, basis_columns or 0) + 10)
    if workers:
        rows = block_rows or -(-n // (workers * threads))
        ways = tuple(size.on_workers(name, workers, rows) for name in ("on workers", "A streamed by workers"))
    else:
        ways = (size.in_memory(block_rows), size.streamed(block_rows), size.on_disk(memory, block_rows))
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
    arrays: int
    task_columns: int
    init: str
    n_init: int
    halo: float
    stored_rows: int
    threads: int
    wide: int = 0  # columns that the eigenvectors are found with

    @property
    def graph(self) -> float:
        """A as it is held."""
        return self.nnz * (self.item + 4) + 8.0 * self.n

    def rows(self, arrays: float, basis: int) -> float:
        """A row of the state in `arrays` arrays, or of the start, whichever is more."""
        arrays += 1 if self.init == "kmeans" else 0  # L when the labels were best
        ended = 6 if self.n_init > 1 else 0  # the state of the best run, cut out
        state = (arrays * self.n_init + ended) * self.k * self.item + LOOKS
        start = 0.0
        if self.init != "random":
            start = basis * self.wide * self.item
        if self.init == "kmeans":
            start = max(start, 2 * self.k * self.item + LABELLED)
        return max(state, start)

    def halo_rows(self, rows: int) -> float:
        """Rows that a block of `rows` rows needs from others; at most, as far as the store's blocks tell."""
        far = self.halo * max(rows, self.stored_rows)
        near = max(self.stored_rows - rows, 0)
        return min(far + near, rows * self.nnz / self.n, self.n)

    def task(self, rows: int) -> float:
        """A task on a block: rows that it reads and writes, those it needs from others, and its part of A."""
        columns = max(self.k * self.n_init, self.wide)
        own = rows * (self.task_columns * self.k * self.n_init + columns) + self.halo_rows(rows) * columns
        return own * self.item + rows * self.nnz / self.n * (self.item + 4)

    def load(self, rows: int) -> float:
        """A task that reads rows from the store: whole blocks of it, unpacked, joined and numbered anew."""
        read = rows + self.stored_rows if rows % self.stored_rows else rows
        return min(read, self.n) * self.nnz / self.n * (3 * self.item + 12)

    def in_memory(self, block_rows: int | None) -> Way:
        rows = min(block_rows or SLICE, self.n)
        task = rows * 4.0 * self.wide * self.item
        held = self.graph + self.n * self.rows(self.arrays, 3)
        return Way("in memory", PROCESS + held + self.threads * task, task, rows)

    def streamed(self, block_rows: int | None) -> Way:
        """The state in memory; a task reads a block of the store."""
        rows = min(block_rows or self.stored_rows, self.n)
        task = self.load(rows)
        held = self.n * self.rows(self.arrays, 3)
        return Way("A streamed", PROCESS + held + self.threads * task, task, rows)

    def on_disk(self, memory: float | None, block_rows: int | None) -> Way:
        """Slices as small as they must be; the rows of others lie anywhere among all rows."""
        rows = min(block_rows or SLICE, self.n)
        a_row = self.task_columns * self.k * self.n_init * self.item + self.nnz / self.n * (self.item + 4)
        others = self.k * self.n_init * self.item
        if self.init != "random":
            others = max(others, self.wide * self.item)
        if self.init == "kmeans":
            others = max(others, COMPARED)
        while True:
            halo = min(self.n * others / self.threads, rows * others + self.halo_rows(rows) * READ_AHEAD)
            task = max(rows * a_row + halo, self.load(self.stored_rows))
            total = PROCESS + 32.0 * self.n + self.threads * task
            if block_rows or rows <= LEAST_ROWS or memory is None or total <= memory:
                break
            rows //= 2
        files = self.graph + self.n * self.rows(self.arrays + 2, 4)
        return Way("on disk", total, task, rows, files)

    def on_workers(self, name: str, workers: int, rows: int) -> Way:
        """Each worker holds its share; steps under way have states of their own."""
        share = self.n / workers
        held = share * self.rows(max(5 * (STEPS_AHEAD + 1), self.arrays), 6)
        task, graph = self.task(rows), self.graph / workers
        if name != "on workers":
            task, graph = task + self.load(rows), 0.0
        packed = self.threads * self.halo_rows(rows) * self.k * self.n_init * self.item
        return Way(name, PROCESS + held + graph + packed + self.threads * task, task, rows)


def _text(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
