"""The stages from points to row blocks of W, each a task on one block that reads and writes files.

============  =====================================================================================
`check`       a block of points: refuse numbers that are not finite; checksum
`draw`        a block of points: a sample of it
`assign`      a block of points: the cells of its rows, and the rows sorted by cell
`search`      a cell: neighbours of its rows within the cell; in an exact build, of a block among all rows
`gather`      a row block: its rows' lists from all cells, merged; scales; edges turned round
`weigh`       a row block: own and incoming edges, weighed; degrees
`join`        a row block: the edges that join small components added
============  =====================================================================================

A row has two numbers: `id` in the input, and `row` in the graph, whose rows are ordered by leaf.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from snmf_dist.errors import InputError
from snmf_dist.graph.build.neighbors import KNN, approximate_neighbors, merge, nearest_neighbors, search
from snmf_dist.graph.build.partition import Partition, place
from snmf_dist.graph.build.points import Points
from snmf_dist.graph.build.scratch import ScratchFiles
from snmf_dist.graph.build.similarity import gaussian_weights, local_scales, symmetric_union

SMALL_CELL = 10_000  # rows below which a cell is searched exactly: sooner done than compiled


@dataclass(frozen=True)
class Job:
    """What every stage needs to know.

    Attributes
    ----------
    files : ScratchFiles
        Where the stages write and read their files.
    points : Points
        The data.
    inputs : ndarray of int
        Bounds of the blocks of the points.
    bounds : ndarray of int
        Bounds of the row blocks of the graph.
    q : int
        Number of neighbours of a row.
    p : int
        The neighbour whose distance is the scale of a row.
    metric : str
        "euclidean" or "cosine".
    exact : bool
        Whether all pairs are compared; there are then no cells, and rows keep their numbers.
    sample : float
        Share of the rows that the partition is made from.
    seed : int
        Seed of the sample and of NNDescent.
    threads : int
        Number of threads of NNDescent.
    shift : ndarray of float64, shape (d,)
        Subtracted from each point. It does not change A, and float32 loses fewer digits.
    scale : float
        Each point is divided by it. It does not change A.
    projection : ndarray, shape (pca, d), or None
        Principal components to project the points on.
    """

    files: ScratchFiles
    points: Points
    inputs: np.ndarray
    bounds: np.ndarray
    q: int
    p: int
    metric: str
    exact: bool
    sample: float
    seed: int
    threads: int
    shift: Any = 0.0
    scale: float = 1.0
    projection: Any = None

    @property
    def n(self) -> int:
        """Number of points."""
        return int(self.inputs[-1])

    @property
    def index(self) -> Any:
        """The integer type of row numbers: 32 bits if they suffice."""
        return np.int32 if self.n <= np.iinfo(np.int32).max else np.int64

    @property
    def length(self) -> Any:
        """The float type of distances: float64 if the search is exact."""
        return np.float64 if self.exact else np.float32

    @property
    def width(self) -> int:
        """Number of neighbours to search for: enough for the graph and for the scales."""
        return min(max(self.q, self.p), self.n - 1)

    def read(self, b: int) -> Any:
        """Block `b` of the points, as `read_rows` returns them."""
        return self.read_rows(int(self.inputs[b]), int(self.inputs[b + 1]))

    def read_rows(self, start: int, stop: int) -> Any:
        """Rows `start` to `stop`, shifted, scaled, projected, and of unit length for cosine."""
        X = self.points.read(start, stop)
        if sparse.issparse(X):
            X = X.astype(np.float64) * (1 / self.scale)
        else:
            X = np.asarray(X, dtype=np.float64) / self.scale - self.shift / self.scale
        if self.projection is not None:
            X = X @ self.projection.T
        if self.metric == "cosine":
            X = unit_rows(X)
        return X.astype(self.length)

    def read_all(self) -> Iterator[tuple[int, Any]]:
        """All blocks with the id of their first row."""
        for b in range(len(self.inputs) - 1):
            yield int(self.inputs[b]), self.read(b)


def unit_rows(X: Any) -> Any:
    """Rows divided by their lengths; rows of zeros as they are. The largest entry goes first: no overflow."""
    for measure in (_largest, _length):
        size = measure(X)
        inverse = np.divide(1, size, out=np.zeros_like(size), where=size > 0)
        X = sparse.csr_matrix(X.multiply(inverse[:, None])) if sparse.issparse(X) else X * inverse[:, None]
    return X


def _largest(X: Any) -> np.ndarray:
    return abs(X).max(axis=1).toarray().ravel() if sparse.issparse(X) else np.abs(X).max(axis=1)


def _length(X: Any) -> np.ndarray:
    squares = X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)
    return np.sqrt(np.asarray(squares).ravel())


class BlockSummary(NamedTuple):
    """What `check` returns for a block of points.

    Attributes
    ----------
    crc : int
        CRC-32 of its numbers.
    total : ndarray of float64, shape (d,)
        Sum of its rows.
    largest : float
        Its largest absolute entry.
    """

    crc: int
    total: np.ndarray
    largest: float


def check(job: Job, b: int) -> BlockSummary:
    """Refuse a block with numbers that are not finite, or with zero rows for cosine."""
    first = int(job.inputs[b])
    raw = job.points.read(first, int(job.inputs[b + 1]))
    is_sparse = sparse.issparse(raw)
    finite = np.isfinite(raw.data if is_sparse else raw)
    if not finite.all():
        where = int(np.argmin(finite if is_sparse else finite.all(axis=1)))
        row = int(np.searchsorted(raw.indptr, where, side="right")) - 1 if is_sparse else where
        raise InputError(
            f"row {first + row} of the points holds NaN or infinity; expected finite numbers: repair or drop "
            "such rows first"
        )
    if job.metric == "cosine":
        filled = (raw != 0).sum(axis=1).ravel() if is_sparse else (raw != 0).any(axis=1)
        if not np.all(filled):
            raise InputError(
                f"row {first + int(np.argmin(filled))} of the points is zero and has no direction; "
                "drop such rows, or use metric='euclidean'"
            )
    crc = 0
    for part in (raw.data, raw.indices, raw.indptr) if is_sparse else (raw,):
        crc = zlib.crc32(np.ascontiguousarray(part).data, crc)
    values = raw.data if is_sparse else raw
    largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    return BlockSummary(crc, np.asarray(raw.sum(axis=0, dtype=np.float64)).ravel(), largest)


def draw(job: Job, b: int) -> None:
    """Write a random sample of the rows of a block."""
    X = job.read(b)
    random = np.random.default_rng((job.seed, b))
    job.files.save("sample", b, rows=X[np.flatnonzero(random.random(X.shape[0]) < job.sample)])


def assign(job: Job, partition: Partition, b: int) -> None:
    """Write the rows of a block of points sorted by cell, a row once for each cell it is put in."""
    X = job.read(b)
    places = place(partition, X)
    cell, row = np.nonzero(places.member.T)
    job.files.save(
        "assign",
        b,
        leaf=places.leaf,
        row=row.astype(np.int32),
        starts=np.searchsorted(cell, np.arange(partition.n_cells + 1)),
        vectors=X[row],
    )


def find_neighbors(job: Job, c: int) -> None:
    """Find neighbours of the rows of a cell among them; written in order of row."""
    if job.exact:
        rows = np.arange(job.inputs[c], job.inputs[c + 1])
        near = search(job.read(c), rows, job.read_all(), job.width)
    else:
        rows, X = _cell(job, c)
        near = _neighbors_in_cell(job, X, c)
        near = KNN(np.where(near.indices < 0, -1, rows[near.indices]), near.distances)
        by_row = np.argsort(rows)
        rows, near = rows[by_row], KNN(*(part[by_row] for part in near))
    job.files.save(
        "search",
        c,
        rows=rows,
        indices=near.indices.astype(job.index),
        distances=near.distances.astype(job.length),
    )


def _cell(job: Job, c: int) -> tuple[np.ndarray, Any]:
    rows, vectors = [], []
    for b in range(len(job.inputs) - 1):
        low, high = (int(x) for x in job.files.load("assign", b, "starts")[c : c + 2])
        local = job.files.load("assign", b, "row", rows=slice(low, high))
        rows.append(job.files.load("order", b, "row")[local])
        vectors.append(job.files.load("assign", b, "vectors", rows=slice(low, high)))
    stack = sparse.vstack if sparse.issparse(vectors[0]) else np.concatenate
    X = stack(vectors)
    return np.concatenate(rows), sparse.csr_matrix(X) if sparse.issparse(X) else X


def _neighbors_in_cell(job: Job, X: Any, c: int) -> KNN:
    m = X.shape[0]
    if m > max(SMALL_CELL, job.width + 6):
        return approximate_neighbors(X, job.width, seed=job.seed + c, threads=job.threads)
    found = nearest_neighbors(X, min(job.width, m - 1)) if m > 1 else KNN(np.empty((m, 0), int), np.empty((m, 0)))
    short = ((0, 0), (0, job.width - found.indices.shape[1]))
    return KNN(
        np.pad(found.indices, short, constant_values=-1),
        np.pad(found.distances, short, constant_values=np.inf),
    )


def gather(job: Job, cells: int, i: int) -> None:
    """Merge the lists of a row block from all cells; scales; its edges turned round, by row they go to."""
    low, high = int(job.bounds[i]), int(job.bounds[i + 1])
    near = KNN(
        np.full((high - low, job.width), -1, dtype=job.index),
        np.full((high - low, job.width), np.inf, dtype=job.length),
    )
    for c in range(cells):
        rows = job.files.load("search", c, "rows")
        cut = slice(*np.searchsorted(rows, (low, high)))
        at = np.asarray(rows[cut]) - low
        found = KNN(*(job.files.load("search", c, name, rows=cut) for name in KNN._fields))
        fresh = near.indices[at, 0] < 0
        merged = merge(
            KNN(*(part[at[~fresh]] for part in near)), KNN(*(part[~fresh] for part in found)), job.width
        )
        for target, new, both in zip(near, found, merged, strict=True):
            target[at[fresh]] = new[fresh]
            target[at[~fresh]] = both
    indices, distances = near.indices[:, : job.q], near.distances[:, : job.q]
    source = np.repeat(np.arange(low, high, dtype=job.index), indices.shape[1])
    real = indices.ravel() >= 0
    turn = np.argsort(indices.ravel()[real], kind="stable")
    job.files.save(
        "gather",
        i,
        indices=indices,
        distances=distances,
        scale=local_scales(near.distances, p=job.p),
        to=indices.ravel()[real][turn],
        source=source[real][turn],
        length=distances.ravel()[real][turn],
    )


def weigh(job: Job, i: int) -> None:
    """Weigh own and incoming edges of a row block; degrees."""
    low, high = int(job.bounds[i]), int(job.bounds[i + 1])
    blocks = range(len(job.bounds) - 1)
    scale = job.files.vector("gather", len(blocks), "scale").astype(np.float64)

    indices, distances = (job.files.load("gather", i, name) for name in KNN._fields)
    rows = np.repeat(np.arange(low, high, dtype=job.index), indices.shape[1])
    own = _weights(job, [(rows, indices.ravel(), distances.ravel())], scale, low, high)

    incoming = []
    for j in blocks:
        to = job.files.load("gather", j, "to")
        cut = slice(*np.searchsorted(to, (low, high)))
        source, length = (job.files.load("gather", j, name, rows=cut) for name in ("source", "length"))
        incoming.append((to[cut], source, length))
    turned = _weights(job, incoming, scale, low, high)

    _save_weights(job, "weigh", i, symmetric_union(own, turned))


def _weights(job: Job, edges: list[Any], scale: np.ndarray, low: int, high: int) -> sparse.csr_matrix:
    """Rows `low` to `high` of W from some edges, each (from, to, distance)."""
    rows, columns, lengths = (np.concatenate(parts) for parts in zip(*edges, strict=True))
    real = columns >= 0
    rows, columns, lengths = rows[real], columns[real], lengths[real].astype(np.float64)
    data = gaussian_weights(lengths, scale[rows], scale[columns])
    return sparse.csr_matrix((data, (rows - low, columns)), shape=(high - low, job.n))


def join(job: Job, edges: np.ndarray, i: int) -> None:
    """Add edges, (m, 2) of rows, to a row block of W.

    Each weighs as much as a neighbour at one's own scale, exp(−1): by its length it would weigh nothing.
    """
    low, high = int(job.bounds[i]), int(job.bounds[i + 1])
    both = np.concatenate((edges, edges[:, ::-1]))
    mine = both[(both[:, 0] >= low) & (both[:, 0] < high)]
    data = np.full(len(mine), np.exp(-1))
    extra = sparse.csr_matrix((data, (mine[:, 0] - low, mine[:, 1])), shape=(high - low, job.n))
    _save_weights(job, "join", i, symmetric_union(job.files.load("weigh", i, "W"), extra))


def _save_weights(job: Job, stage: str, i: int, W: sparse.csr_matrix) -> None:
    job.files.save(stage, i, W=W, degree=np.asarray(W.sum(axis=1)).ravel())
