"""Coordinates of sampled rows, and rows of any table, a block at a time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist import storage
from snmf_dist.errors import InputError
from snmf_dist.graph.build.points import open_points
from snmf_dist.report.aggregates import Members, sample_of
from snmf_dist.result.foldin import take_rows
from snmf_dist.result.plane import principal_plane
from snmf_dist.result.records import Sample

BLOCK_NUMBERS = 1 << 22  # of a table in memory at a time
EXACT_COLUMNS = 1000  # of points whose principal components are taken exactly
MAPPED = 20_000  # rows on a map at most
MEMBERSHIPS = "two principal components of the memberships"


def table_blocks(table: Any) -> Iterator[Any]:
    """Blocks of rows of what `open_points` returns."""
    if hasattr(table, "read"):
        n, d = table.shape
        rows = max(BLOCK_NUMBERS // d, 1)
        for start in range(0, n, rows):
            yield table.read(start, min(start + rows, n))
    elif hasattr(table, "batches"):
        yield from table.batches()
    else:
        for i in range(table.numblocks[0]):
            yield table.blocks[i].compute()


def places_of(solution: Any, points: Any, options: storage.Options) -> tuple[Sample, str]:
    """Where sampled rows lie on the map, and what its plane is.

    Given points come first, then the eigenvectors that the result keeps, then its memberships.
    """
    if points is not None:
        return _from_points(solution, points, options)
    if solution.sample is not None:
        return solution.sample, "the two directions in which the leading eigenvectors of A spread most"
    rows = sample_of(solution, MAPPED)
    L = take_rows(solution.membership, rows)
    total = L.sum(axis=1, keepdims=True)
    return Sample(rows, _principal(np.divide(L, total, out=np.zeros_like(L), where=total > 0))), MEMBERSHIPS


def _from_points(solution: Any, points: Any, options: storage.Options) -> tuple[Sample, str]:
    n = len(solution.labels)
    table = open_points(points, options=options)
    if table.shape[0] != n:
        raise InputError(f"points has {table.shape[0]} rows; expected {n}, one for each row of the result")
    rows = sample_of(solution, MAPPED)
    found, done = [], 0
    for block in table_blocks(table):
        here = rows[(rows >= done) & (rows < done + block.shape[0])] - done
        found.append(block[here])
        done += block.shape[0]
    sampled = sparse.vstack(found, format="csr") if sparse.issparse(found[0]) else np.concatenate(found)
    if not np.isfinite(np.asarray(sampled.data if sparse.issparse(sampled) else sampled)).all():
        raise InputError("points holds NaN or infinity; fill such cells, or leave points out")
    if sampled.shape[1] == 2 and not sparse.issparse(sampled):
        return Sample(rows, sampled.astype(np.float32)), "the coordinates given"
    return Sample(rows, _principal(sampled)), "two principal components of the points"


def _principal(X: Any) -> np.ndarray:
    """Two principal components, (s, 2); of sparse rows and of very many columns two singular vectors."""
    if X.shape[1] <= EXACT_COLUMNS:
        return principal_plane((X.toarray() if sparse.issparse(X) else X).astype(np.float64))
    from sklearn.decomposition import TruncatedSVD

    return np.asarray(TruncatedSVD(2, random_state=0).fit_transform(X), dtype=np.float32)


def central_ids(solution: Any, members: Members, ids: Any) -> list[list[str]]:
    """The ids of the central nodes of each cluster: those given, those of the result, or row numbers."""
    n = len(solution.labels)
    if ids is not None and len(ids) != n:
        raise InputError(f"there are {len(ids)} ids; expected {n}, one for each row of the result")
    known = solution.ids if ids is None else np.asarray(ids, dtype=object)
    return [[str(row if known is None else known[int(row)]) for row in rows] for rows in members.central]
