"""An order of the rows that keeps neighbours together, for graphs that arrive in any other.

Two orders are tried, and what a product with A would cost in each is measured. *By leaves*: a few products of
the graph with random columns leave each row the mean of its surroundings; a tree of cuts in halves puts rows
with like surroundings together. It reads the graph block by block. *Cuthill–McKee*: breadth first from the rim,
best for meshes and roads; it needs the whole graph in memory. Weights do not matter here: a product costs the
same whatever they are.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

SMALL = 1 << 15  # rows: with K = 20 in float32 all of B is 2.6 MB and stays in the cache in any order
IN_MEMORY = 200_000_000  # entries held at a time: 0.8 GB as they are, 1 GB more for Cuthill–McKee
ROW_COST, ENTRY_COST = 200, 16  # bytes of memory for a row, and for an entry if all are held
SMOOTHED = 8  # that are smoothed: 32 bytes a row
ROUNDS, PRODUCTS = 4, 4  # orthonormalisations, and products before each
ROW_SAMPLE = 4  # entries of a row, in the mean, that a product takes: every other product takes other ones
LEAF = 512  # rows in a leaf; B is 40 kB there, as large as a first-level cache
SHALLOW = 6  # steps: a row's neighbours then lie anywhere in a sixth of all rows, or in more
CACHED_ROWS, LINE = 1024, 4  # rows of a product that share the cache; rows of B fetched together
TILES, PARTS = 32, 8  # how many tiles and row blocks are looked at, evenly spread
# What a fetch costs, in entries whose row of B is in the cache; on the low side. A product with a 125k-row
# neighbour graph, K = 20, took 8.1, 9.2, 11 and 34.5 ns an entry at 0.06, 0.12, 0.14 and 0.67 fetches.
FETCH = 4
CLEARLY = 0.8  # of the cost as it came: a smaller gain is not worth rows in a strange order

BlockPattern = tuple[np.ndarray, np.ndarray]  # indptr and indices of a row block
Report = Callable[[int, int], None]


class GraphPattern(NamedTuple):
    """Where the entries of a symmetric matrix are.

    Attributes
    ----------
    bounds : ndarray of int64, shape (P+1,)
        The row blocks.
    pattern : callable
        Block number to (indptr, indices).
    """

    bounds: np.ndarray
    pattern: Callable[[int], BlockPattern]

    @property
    def n(self) -> int:
        """Rows."""
        return int(self.bounds[-1])

    def degree(self) -> np.ndarray:
        """Entries of each row, (n,) int64."""
        return np.concatenate([np.diff(indptr) for _, (indptr, _) in self.blocks()]).astype(np.int64)

    def blocks(self) -> Iterator[tuple[slice, BlockPattern]]:
        """Each block's rows and entries."""
        for i in range(len(self.bounds) - 1):
            yield slice(int(self.bounds[i]), int(self.bounds[i + 1])), self.pattern(i)


class Cost(NamedTuple):
    """What a product with A costs in an order of its rows.

    Attributes
    ----------
    diagonal : float
        Share of the entries in diagonal blocks.
    halo : float
        Rows that a block needs from others, in block sizes.
    fetches : float
        Groups of `LINE` rows of B that a tile of `CACHED_ROWS` rows touches, an entry: 1 if none serves twice.
    largest : int
        Entries of the largest block.
    """

    diagonal: float
    halo: float
    fetches: float
    largest: int

    def against(self, other: "Cost") -> float:
        """The cost as a share of that of `other`; infinite if any part of it is higher."""
        # blocks of very unequal size would cost what the order gains, in memory and in waiting
        if self.halo > other.halo or self.fetches > other.fetches or self.largest > 1.5 * other.largest:
            return np.inf
        rows = (1 + self.halo) / (1 + other.halo)
        time = (1 + FETCH * self.fetches) / (1 + FETCH * other.fetches)
        return (rows + time) / 2


class OrderChoice(NamedTuple):
    """The best order found, row to row as it came, or None to leave it; and why, in words."""

    order: np.ndarray | None
    reason: str


def choose_order(graph: GraphPattern, progress: Report, memory: float = np.inf) -> OrderChoice:
    """Try the orders that fit, measure them, and take the best if it is clearly better than the rows as they came.

    Parameters
    ----------
    graph : GraphPattern
        Read several times, block by block; held if it has no more than `IN_MEMORY` entries.
    progress : callable
        Called as ``progress(done, total)`` after each trial.
    memory : float, optional
        Bytes that may be used; an order that needs more is not tried.

    Examples
    --------
    >>> path = sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(6, 6)).tocsr()
    >>> graph = GraphPattern(np.array([0, 6]), lambda i: (path.indptr, path.indices))
    >>> choose_order(graph, lambda done, total: None).reason
    'as it came: small enough for any order'
    """
    if graph.n < SMALL:
        return OrderChoice(None, "as it came: small enough for any order")
    if graph.n * ROW_COST > memory:
        return OrderChoice(
            None,
            f"as it came: looking for an order takes {graph.n * ROW_COST / 1e9:.2f} GB, memory_limit leaves "
            f"{memory / 1e9:.2f} GB",
        )
    tries: dict[str, Callable[[GraphPattern], np.ndarray]] = {"leaves": by_leaves}
    held = int(graph.degree().sum()) <= min(IN_MEMORY, (memory - graph.n * ROW_COST) / ENTRY_COST)
    if held:
        graph = graph._replace(pattern=cache(graph.pattern))
        if not is_shallow(graph):
            tries["Cuthill–McKee"] = cuthill_mckee
    before = measure(graph, np.arange(graph.n))
    best, name, order, after = CLEARLY, "", None, before
    for done, (trial, find) in enumerate(tries.items()):
        progress(done, len(tries))
        found = find(graph)
        cost = measure(graph, rank_of(found))
        share = cost.against(before)
        if share <= best:
            best, name, order, after = share, trial, found, cost
    progress(len(tries), len(tries))
    parts = len(parts_of(graph.bounds)) - 1
    return OrderChoice(order, _reason(name, before, after, parts=parts, held=held))


def _reason(name: str, before: Cost, after: Cost, *, parts: int, held: bool) -> str:
    skipped = "" if held else "; too many entries to hold, so Cuthill–McKee was not tried"
    if not name:
        return (
            f"as it came: {before.diagonal:.0%} of entries in {parts} diagonal blocks, halo {before.halo:.2f} "
            f"blocks, {before.fetches:.2f} fetches an entry; no order found was clearly better{skipped}"
        )
    return (
        f"by {name}: {after.diagonal:.0%} of entries in {parts} diagonal blocks ({before.diagonal:.0%} as it "
        f"came), halo {after.halo:.2f} blocks ({before.halo:.2f}), {after.fetches:.2f} fetches an entry "
        f"({before.fetches:.2f}){skipped}"
    )


def rank_of(order: np.ndarray) -> np.ndarray:
    """The inverse of a permutation: where each row goes.

    Examples
    --------
    >>> rank_of(np.array([2, 0, 1]))
    array([1, 2, 0])
    """
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank


def parts_of(bounds: np.ndarray) -> np.ndarray:
    """The bounds that halos are measured at: those of the store, or of `PARTS` parts if it has fewer blocks."""
    if len(bounds) > PARTS:
        return bounds
    return np.unique(np.linspace(0, bounds[-1], PARTS + 1).astype(np.int64))


def measure(graph: GraphPattern, rank: np.ndarray) -> Cost:
    """What products would cost if row i stood at ``rank[i]``; halo and fetches are of some blocks and tiles."""
    n, bounds = graph.n, parts_of(graph.bounds)
    part_of = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))[rank]
    halos = _Sample(part_of, len(bounds) - 1, PARTS, columns=n)
    tiles = _Sample(rank // CACHED_ROWS, -(-n // CACHED_ROWS), TILES, columns=-(-n // LINE))
    entries = np.zeros(len(bounds) - 1, dtype=np.int64)
    diagonal = 0
    for rows, (indptr, indices) in graph.blocks():
        counts = np.diff(indptr)
        entries += np.bincount(part_of[rows], weights=counts, minlength=len(entries)).astype(np.int64)
        diagonal += int(np.count_nonzero(np.repeat(part_of[rows], counts) == part_of[indices]))
        halos.add(rows, indptr, indices, rank)
        tiles.add(rows, indptr, indices, rank, LINE)
    own = [slice(bounds[part], bounds[part + 1]) for part in halos.picked]
    outside = int(halos.seen.sum()) - sum(
        int(seen[rows].sum()) for seen, rows in zip(halos.seen, own, strict=True)
    )
    return Cost(
        diagonal=diagonal / int(entries.sum()),
        halo=outside / sum(int(rows.stop - rows.start) for rows in own),
        fetches=int(tiles.seen.sum()) / max(tiles.entries, 1),
        largest=int(entries.max()),
    )


class _Sample:
    """Which columns some groups of rows touch."""

    def __init__(self, group_of: np.ndarray, groups: int, at_most: int, *, columns: int) -> None:
        self.picked = np.unique(np.linspace(0, groups - 1, at_most).astype(np.int64))
        places = np.full(groups, -1, dtype=np.int32)
        places[self.picked] = np.arange(len(self.picked))
        self.place_of = places[group_of]
        self.seen = np.zeros((len(self.picked), columns), dtype=bool)
        self.entries = 0

    def add(self, rows: slice, indptr: np.ndarray, indices: np.ndarray, rank: np.ndarray, width: int = 1) -> None:
        """Take note of a block of rows whose columns stand at `rank`."""
        places = self.place_of[rows]
        mine = np.flatnonzero(places >= 0)
        kept = _entries_of(mine, indptr)
        self.seen[np.repeat(places[mine], np.diff(indptr)[mine]), rank[indices[kept]] // width] = True
        self.entries += len(kept)


def _entries_of(rows: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """The numbers of the entries of some rows."""
    counts = (indptr[rows + 1] - indptr[rows]).astype(np.int64)
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(indptr[rows] - ends + counts, counts)


def is_shallow(graph: GraphPattern) -> bool:
    """Tell whether half of the rows lie within `SHALLOW` steps of one: no order by steps is then a good one."""
    reached = np.zeros(graph.n, dtype=bool)
    reached[int(np.argmax(graph.degree()))] = True
    fresh = reached.copy()
    for _ in range(SHALLOW):
        before = reached.copy()
        for rows, (indptr, indices) in graph.blocks():
            reached[indices[_entries_of(np.flatnonzero(fresh[rows]), indptr)]] = True
        fresh = reached & ~before
        if 2 * np.count_nonzero(reached) > graph.n:
            return True
    return False


def cuthill_mckee(graph: GraphPattern) -> np.ndarray:
    """Reverse Cuthill–McKee order, row to row as it came; holds all entries."""
    starts, columns, end = [np.zeros(1, dtype=np.int64)], [], 0
    for _, (indptr, indices) in graph.blocks():
        starts.append(indptr[1:].astype(np.int64) + end)
        columns.append(indices)
        end += len(indices)
    small = np.int32 if max(end, graph.n) <= np.iinfo(np.int32).max else np.int64
    indptr, indices = np.concatenate(starts).astype(small), np.concatenate(columns).astype(small, copy=False)
    A = sparse.csr_matrix((np.ones(end, dtype=bool), indices, indptr), shape=(graph.n, graph.n), copy=False)
    return reverse_cuthill_mckee(A, symmetric_mode=True).astype(np.int64)


def by_leaves(graph: GraphPattern) -> np.ndarray:
    """Rows by the leaves of a tree over their smoothed surroundings, row to row as it came; isolated rows last."""
    degree = graph.degree()
    places = surroundings(graph, degree)
    order = np.argsort(degree == 0, kind="stable")
    _halve(order[: np.count_nonzero(degree)], places, graph.bounds)
    return order


def surroundings(graph: GraphPattern, degree: np.ndarray) -> np.ndarray:
    """A few smooth functions on the graph, (n, SMOOTHED) float32: rows that lie close hang together.

    Block power iteration on D^-½ P D^-½, P being 1 where A has an entry; of its Ritz vectors those that change
    least along edges count most, λ/(1 − λ), as if the walk went on.
    """
    root = np.sqrt(1 / np.maximum(degree, 1)).astype(np.float32)[:, None]
    X = np.random.default_rng(0).standard_normal((graph.n, SMOOTHED), dtype=np.float32)
    step = max(int(degree.mean() // ROW_SAMPLE), 1)
    for turn in range(ROUNDS):
        for product in range(PRODUCTS):
            X = _smoothed(graph, X, root, step, PRODUCTS * turn + product)
        X = _orthonormal(X)
    Y = _smoothed(graph, X, root)
    values, vectors = np.linalg.eigh(X.T @ Y)
    # Y and not X: with all entries it is smoother, and Y = X V Λ Vᵀ where X is good
    weights = np.maximum(values, 0.01) / (1.02 - np.minimum(values, 1)) / np.maximum(values, 0.05)
    return np.asarray((Y @ (vectors * weights)) * root, dtype=np.float32)


def _smoothed(graph: GraphPattern, X: np.ndarray, root: np.ndarray, step: int = 1, first: int = 0) -> np.ndarray:
    """D^-½ P D^-½ X, block by block; of P every `step`-th entry alone, from number `first` on."""
    scaled, Y = X * root, np.empty_like(X)
    done = 0
    for rows, (indptr, indices) in graph.blocks():
        skip = (first - done) % step  # so that blocks do not matter
        some = indices[skip::step]
        starts = ((indptr + (step - 1 - skip)) // step).astype(indptr.dtype, copy=False)
        P = sparse.csr_matrix(
            (np.ones(len(some), dtype=np.float32), some, starts), shape=(len(indptr) - 1, graph.n), copy=False
        )
        Y[rows] = P @ scaled
        done += len(indices)
    Y *= root * np.float32(step)
    return Y


def _orthonormal(X: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the columns; those lost to rounding are left out."""
    values, vectors = np.linalg.eigh((X.T @ X).astype(np.float64))
    kept = values > 1e-6 * values[-1]
    return np.asarray(X @ (vectors[:, kept] / np.sqrt(values[kept])).astype(np.float32))


def _halve(order: np.ndarray, places: np.ndarray, bounds: np.ndarray) -> None:
    """Sort `order` in place by a tree of cuts in halves, each across the widest direction of its rows.

    Cuts fall on the bounds of blocks as long as there is one within; a part runs the way the one it was cut
    from does, so that neighbouring leaves are close too.
    """
    parts = [(0, len(order), np.ones(places.shape[1]))]
    while parts:
        start, stop, along = parts.pop()
        here = places[order[start:stop]]
        direction = _widest(here)
        direction *= 1 if direction @ along >= 0 else -1
        far = here @ direction.astype(np.float32)
        if stop - start <= LEAF:
            order[start:stop] = order[start:stop][np.argsort(far, kind="stable")]
            continue
        within = bounds[(bounds > start) & (bounds < stop)]
        centre = (start + stop) // 2
        cut = int(within[np.argmin(abs(within - centre))]) if len(within) else centre
        order[start:stop] = order[start:stop][np.argpartition(far, cut - start)]
        parts += [(start, cut, direction), (cut, stop, direction)]


def _widest(places: np.ndarray) -> np.ndarray:
    """First principal direction of (a sample of) the rows."""
    sample = places[:: max(len(places) // 4096, 1)].astype(np.float64)
    sample -= sample.mean(axis=0)
    return np.asarray(np.linalg.eigh(sample.T @ sample)[1][:, -1])
