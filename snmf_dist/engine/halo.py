"""A row block of A by itself: its columns are numbered [own rows | halo], and it says where the halo comes from.

The halo are the rows of other blocks that a product with the block needs. Where a block needs most rows of another
one it asks for all of them, which then travel without being packed. `serving` fetches them.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

SPARE = 48  # indices behind the last one, so that a kernel may look ahead; see `simd.PREFETCH`
WHOLE_BLOCK = 0.5  # share of a block's rows from which on all of them are asked for


class Need(NamedTuple):
    """What a block needs of another one.

    Attributes
    ----------
    block : int
        The number of the other block.
    rows : ndarray of uint32, or None
        The rows needed, numbered within that block; None stands for all of them.
    size : int
        How many rows these are.
    """

    block: int
    rows: np.ndarray | None
    size: int

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The rows needed, from those of the other block."""
        return rows if self.rows is None else rows[self.rows]


class RowSource(NamedTuple):
    """The keys under which a block of some rows may be held.

    Attributes
    ----------
    name : str
        Block j is the chunk ``(name, j, 0)``,
    task : str or None
        or, until that is picked out, a part of what the task ``(task, j)`` returned.
    part : int
        The number of that part.
    """

    name: str
    task: str | None = None
    part: int = 0


class Block(NamedTuple):
    """Some rows of A, as the kernels take them.

    Attributes
    ----------
    indptr : ndarray of int64, (rows + 1,)
        Where each row begins in `indices` and `data`.
    indices : ndarray of uint32
        Columns; `SPARE` more than there are entries.
    data : ndarray
        Entries.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray

    @property
    def columns(self) -> np.ndarray:
        """The columns of the entries."""
        return self.indices[self.indptr[0] : self.indptr[-1]]

    @property
    def entries(self) -> np.ndarray:
        """The entries; `data` may hold those of other rows too."""
        return self.data[self.indptr[0] : self.indptr[-1]]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.indptr.nbytes + self.indices.nbytes + self.data.nbytes)


def whole_block(A: sparse.csr_matrix) -> Block:
    """All of A: every column is one of its own rows."""
    return Block(A.indptr.astype(np.int64), padded(A.indices), A.data)


def find_needs(columns: np.ndarray, bounds: np.ndarray, i: int) -> tuple[Need, ...]:
    """What block i needs of the others, given the columns of its entries; memory grows with the entries alone.

    Parameters
    ----------
    columns : ndarray of int
        The columns of the entries of rows bounds[i] to bounds[i + 1] of A.
    bounds : ndarray of int, (P + 1,)
        Where the row blocks begin and end.
    i : int
        The number of the block.

    Examples
    --------
    >>> [(need.block, need.rows.tolist()) for need in find_needs(np.array([1, 5, 1]), np.array([0, 1, 3, 6]), 0)]
    [(1, [0]), (2, [2])]
    """
    elsewhere = np.unique(columns[(columns < bounds[i]) | (columns >= bounds[i + 1])])
    cuts = np.searchsorted(elsewhere, bounds)
    needs = []
    for j in np.flatnonzero(np.diff(cuts)).tolist():
        rows = (elsewhere[cuts[j] : cuts[j + 1]] - bounds[j]).astype(np.uint32)
        size = int(bounds[j + 1] - bounds[j])
        needs.append(Need(j, None, size) if len(rows) > WHOLE_BLOCK * size else Need(j, rows, len(rows)))
    return tuple(needs)


def local_block(A: sparse.csr_matrix, bounds: np.ndarray, i: int, needs: tuple[Need, ...]) -> Block:
    """Rows bounds[i] to bounds[i + 1] of A as a block whose columns are numbered [own rows | halo].

    Examples
    --------
    >>> A, bounds = sparse.csr_matrix([[0, 1, 0, 0, 0, 2.0]]), np.array([0, 1, 3, 6])
    >>> local_block(A, bounds, 0, find_needs(A.indices, bounds, 0)).columns.tolist()
    [1, 2]
    """
    low, high = int(bounds[i]), int(bounds[i + 1])
    halo = [bounds[j] + (np.arange(size) if rows is None else rows) for j, rows, size in needs]
    sorted_halo = np.concatenate([np.empty(0, np.int64), *halo])  # blocks and rows ascend, so all of it does
    indices = padded(np.zeros(len(A.indices), np.uint32))
    own = (A.indices >= low) & (A.indices < high)
    here = indices[: len(A.indices)]
    here[own] = A.indices[own] - low
    here[~own] = high - low + np.searchsorted(sorted_halo, A.indices[~own])
    return Block(A.indptr.astype(np.int64), indices, A.data)


def padded(columns: np.ndarray) -> np.ndarray:
    """Columns as uint32, with `SPARE` zeros behind them."""
    indices = np.zeros(len(columns) + SPARE, dtype=np.uint32)
    indices[: len(columns)] = columns
    return indices
