"""The stages from points to row blocks of W, each a task on one block that reads and writes files.

============  ==========================================================================
`check`       a block of points: is every number finite; its checksum
`draw`        a block of points: a sample of it
`assign`      a block of points: the cells of its rows, and the rows sorted by cell
`connect`     a cell: neighbours of its rows among its rows (or, exactly, a block among all)
`gather`      a row block: its rows' lists from all cells, merged; scales; edges turned round
`weigh`       a row block: own and incoming edges, weighed; degrees
============  ==========================================================================

Rows have two numbers: `id` in the input, and `row` in the order of leaves, which is that of the graph.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist.errors import InputError
from snmf_dist.graph.neighbors import KNN, approximate_neighbors, merge, nearest_neighbors, search
from snmf_dist.graph.partition import Partition, place
from snmf_dist.graph.points import Points
from snmf_dist.graph.similarity import gaussian_weights, local_scales, symmetric_union
from snmf_dist.graph.workshop import Workshop

SMALL_CELL = 10_000  # rows below which a cell is searched exactly: sooner done than compiled


@dataclass(frozen=True)
class Job:
    """What every stage needs to know.

    Attributes
    ----------
    shop, points : Workshop, Points
        Where files are, and the data.
    inputs, bounds : ndarray of int
        Bounds of the blocks of the input, and of the row blocks of the graph.
    q, p : int
        Neighbours of a row; the one that gives its scale.
    metric : str
        "euclidean" or "cosine".
    exact : bool
        Search all pairs; no cells, and rows keep their input numbers.
    sample : float
        Share of the rows that the partition is made from.
    seed, threads : int
        Of NNDescent.
    projection : tuple of arrays or None
        Mean (d,) and components (pca, d) to project on.
    """

    shop: Workshop
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
    projection: Any = None

    @property
    def n(self) -> int:
        """Number of points."""
        return int(self.inputs[-1])

    @property
    def index(self) -> Any:
        """Integers that count all rows: half the bytes where 32 bits will do."""
        return np.int32 if self.n <= np.iinfo(np.int32).max else np.int64

    @property
    def length(self) -> Any:
        """Floats for distances: all digits where the search is exact."""
        return np.float64 if self.exact else np.float32

    @property
    def width(self) -> int:
        """Neighbours to look for: enough for the graph and for the scales."""
        return min(max(self.q, self.p), self.n - 1)

    def read(self, b: int) -> Any:
        """Block `b` of the points as the search sees them: real, projected, of unit length for cosine."""
        X = self.points.read(int(self.inputs[b]), int(self.inputs[b + 1]))
        kind = np.float64 if self.exact and self.points.dtype == np.float64 else np.float32
        X = X.astype(kind) if sparse.issparse(X) else np.ascontiguousarray(X, dtype=kind)
        if self.projection is not None:
            mean, components = self.projection
            X = ((X - mean) @ components.T).astype(kind)
        if self.metric == "cosine":
            X = unit_rows(X)
        return X

    def read_all(self) -> Iterator[tuple[int, Any]]:
        """All blocks with the id of their first row."""
        for b in range(len(self.inputs) - 1):
            yield int(self.inputs[b]), self.read(b)


def unit_rows(X: Any) -> Any:
    """Rows divided by their lengths; rows of zeros as they are."""
    if sparse.issparse(X):
        length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        inverse = np.divide(1, length, out=np.zeros_like(length), where=length > 0)
        return sparse.csr_matrix(X.multiply(inverse[:, None]), dtype=X.dtype)
    length = np.linalg.norm(X, axis=1, keepdims=True)
    return np.divide(X, length, out=np.zeros_like(X), where=length > 0)


def check(job: Job, b: int) -> int:
    """Refuse a block with numbers that are not finite; return its checksum."""
    first = int(job.inputs[b])
    raw = job.points.read(first, int(job.inputs[b + 1]))
    values = raw.data if sparse.issparse(raw) else raw
    finite = np.isfinite(values)
    if not finite.all():
        where = int(np.argmin(finite.ravel() if sparse.issparse(raw) else finite.all(axis=1)))
        row = int(np.searchsorted(raw.indptr, where, side="right")) - 1 if sparse.issparse(raw) else where
        raise InputError(
            f"row {first + row} of the points holds NaN or infinity; expected finite numbers: repair or drop "
            "such rows first"
        )
    if job.metric == "cosine":
        empty = np.asarray(abs(raw).max(axis=1).todense() if sparse.issparse(raw) else abs(raw).max(axis=1))
        if (empty == 0).any():
            raise InputError(
                f"row {first + int(np.argmin(empty.ravel()))} of the points is zero and has no direction; "
                "drop such rows, or use metric='euclidean'"
            )
    crc = 0
    for part in (raw.data, raw.indices, raw.indptr) if sparse.issparse(raw) else (raw,):
        crc = zlib.crc32(np.ascontiguousarray(part).data, crc)
    return crc


def draw(job: Job, b: int) -> None:
    """Write a random sample of the rows of a block."""
    X = job.read(b)
    random = np.random.default_rng((job.seed, b))
    job.shop.save("sample", b, rows=X[np.flatnonzero(random.random(X.shape[0]) < job.sample)])


def assign(job: Job, partition: Partition, b: int) -> None:
    """Write the rows of a block of points sorted by cell, a row once for each cell it is put in."""
    X = job.read(b)
    places = place(partition, X)
    cell, row = np.nonzero(places.member.T)
    job.shop.save(
        "assign",
        b,
        leaf=places.leaf,
        row=row.astype(np.int32),
        starts=np.searchsorted(cell, np.arange(partition.n_cells + 1)),
        vectors=X[row],
    )


def connect(job: Job, c: int) -> None:
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
    job.shop.save(
        "connect",
        c,
        rows=rows,
        indices=near.indices.astype(job.index),
        distances=near.distances.astype(job.length),
    )


def _cell(job: Job, c: int) -> tuple[np.ndarray, Any]:
    rows, vectors = [], []
    for b in range(len(job.inputs) - 1):
        low, high = (int(x) for x in job.shop.load("assign", b, "starts")[c : c + 2])
        local = job.shop.load("assign", b, "row", rows=slice(low, high))
        rows.append(job.shop.load("order", b, "row")[local])
        vectors.append(job.shop.load("assign", b, "vectors", rows=slice(low, high)))
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
        rows = job.shop.load("connect", c, "rows")
        cut = slice(*np.searchsorted(rows, (low, high)))
        at = np.asarray(rows[cut]) - low
        found = KNN(*(job.shop.load("connect", c, name, rows=cut) for name in KNN._fields))
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
    job.shop.save(
        "gather",
        i,
        indices=indices,
        distances=distances,
        scale=local_scales(near.distances, p=job.p),
        to=indices.ravel()[real][turn],
        source=source[real][turn],
        length=distances.ravel()[real][turn],
    )


def weigh(job: Job, extra: np.ndarray, i: int) -> None:
    """Weigh own and incoming edges of a row block; `extra` holds edges (row, row, distance) to add."""
    low, high = int(job.bounds[i]), int(job.bounds[i + 1])
    blocks = range(len(job.bounds) - 1)
    scale = job.shop.vector("gather", len(blocks), "scale")

    indices, distances = (job.shop.load("gather", i, name) for name in KNN._fields)
    rows = np.repeat(np.arange(low, high, dtype=job.index), indices.shape[1])
    own = _weights(job, [(rows, indices.ravel(), distances.ravel()), _within(extra, low, high)], scale, low, high)

    incoming = []
    for j in blocks:
        to = job.shop.load("gather", j, "to")
        cut = slice(*np.searchsorted(to, (low, high)))
        source, length = (job.shop.load("gather", j, name, rows=cut) for name in ("source", "length"))
        incoming.append((to[cut], source, length))
    turned = _weights(job, [*incoming, _within(extra[:, [1, 0, 2]], low, high)], scale, low, high)

    W = symmetric_union(own, turned)
    job.shop.save("weigh", i, W=W, degree=np.asarray(W.sum(axis=1)).ravel())


def _within(edges: np.ndarray, low: int, high: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Those of `edges`, (m, 3), that leave from the rows `low` to `high`."""
    mine = edges[(edges[:, 0] >= low) & (edges[:, 0] < high)]
    return mine[:, 0].astype(np.int64), mine[:, 1].astype(np.int64), mine[:, 2]


def _weights(job: Job, edges: list[Any], scale: np.ndarray, low: int, high: int) -> sparse.csr_matrix:
    """Rows `low` to `high` of W from some edges, each (from, to, distance)."""
    rows, columns, lengths = (np.concatenate(parts) for parts in zip(*edges, strict=True))
    real = columns >= 0
    rows, columns, lengths = rows[real], columns[real], lengths[real].astype(np.float64)
    data = gaussian_weights(lengths, scale[rows].astype(np.float64), scale[columns].astype(np.float64))
    return sparse.csr_matrix((data, (rows - low, columns)), shape=(high - low, job.n))
