"""A row block of A by itself: its columns are numbered [own rows | halo], and it says where the halo comes from.

The halo are the rows of other blocks that a product with the block needs. Where it needs most rows of a block it
asks for all of them: that block then travels as it is, without being packed.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import sparse

SPARE = 48  # indices behind the last one, so that a kernel may look ahead; see `simd.PREFETCH`
WHOLE = 0.5  # share of a block's rows from which on all of them are asked for


class Need(NamedTuple):
    """What a block needs of another: these of its rows, or all if `rows` is None."""

    block: int
    rows: np.ndarray | None

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The rows needed."""
        return rows if self.rows is None else rows[self.rows]


class Block(NamedTuple):
    """Some rows of A.

    Attributes
    ----------
    indptr : ndarray of int64, (rows + 1,)
        Where each row begins in `indices` and `data`.
    indices : ndarray of uint32
        Columns; `SPARE` more than there are entries.
    data : ndarray
        Entries.
    needs : tuple of Need
        Where the halo comes from, in the order of its rows.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    needs: tuple[Need, ...] = ()

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
        """Bytes of the arrays; Dask asks, to know when memory runs out."""
        halo = sum(need.rows.nbytes for need in self.needs if need.rows is not None)
        return int(self.indptr.nbytes + self.indices.nbytes + self.data.nbytes + halo)

    def __sizeof__(self) -> int:
        return self.nbytes


def whole_block(A: sparse.csr_matrix) -> Block:
    """All of A: every row is its own."""
    return Block(A.indptr.astype(np.int64), padded(A.indices), A.data)


def local_block(A: sparse.csr_matrix, bounds: np.ndarray, i: int, needs: tuple[Need, ...] | None = None) -> Block:
    """Rows bounds[i] to bounds[i+1] of A as a block; `needs` if they are known from before.

    Examples
    --------
    >>> A = sparse.csr_matrix([[0, 1, 0, 0, 0, 2.0]])
    >>> block = local_block(A, np.array([0, 1, 3, 6]), 0)
    >>> block.columns.tolist(), [(need.block, need.rows.tolist()) for need in block.needs]
    ([1, 2], [(1, [0]), (2, [2])])
    """
    if needs is None:
        needs = _needs(A.indices, bounds, i)
    # Numbers beyond the block's own columns are never looked up.
    place = np.empty(int(bounds[-1]), dtype=np.uint32)
    low, high = int(bounds[i]), int(bounds[i + 1])
    place[low:high] = np.arange(high - low)
    number = high - low
    for need in needs:
        first, last = int(bounds[need.block]), int(bounds[need.block + 1])
        rows = slice(first, last) if need.rows is None else first + need.rows
        size = last - first if need.rows is None else len(need.rows)
        place[rows] = np.arange(number, number + size)
        number += size
    return Block(A.indptr.astype(np.int64), padded(place[A.indices]), A.data, needs)


def _needs(columns: np.ndarray, bounds: np.ndarray, i: int) -> tuple[Need, ...]:
    there = np.zeros(int(bounds[-1]), dtype=bool)
    there[columns] = True
    needs = []
    for j, (first, last) in enumerate(pairwise(bounds)):
        rows = np.flatnonzero(there[first:last]).astype(np.uint32)
        if j != i and len(rows):
            needs.append(Need(j, None if len(rows) > WHOLE * (last - first) else rows))
    return tuple(needs)


def padded(columns: np.ndarray) -> np.ndarray:
    """Columns as uint32, with `SPARE` zeros behind them."""
    indices = np.zeros(len(columns) + SPARE, dtype=np.uint32)
    indices[: len(columns)] = columns
    return indices
