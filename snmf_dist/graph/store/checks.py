"""What must hold of the row blocks of a graph; needs one block at a time, never all of A."""

from collections.abc import Iterator

import numpy as np
from scipy import sparse


def block_problems(A: sparse.csr_matrix) -> Iterator[str]:
    """Say what is wrong with a CSR row block, in words."""
    if A.indptr[0] != 0 or (np.diff(A.indptr) < 0).any() or A.indptr[-1] != A.nnz:
        yield "indptr does not rise from 0 to the number of entries"
        return
    if A.nnz and (A.indices.min() < 0 or A.indices.max() >= A.shape[1]):
        yield "a column index is outside the matrix"
    rises = np.diff(A.indices) > 0
    starts = A.indptr[1:-1]
    rises[starts[(starts > 0) & (starts < A.nnz)] - 1] = True
    if not rises.all():
        yield "column indices do not rise within a row"
    if not np.isfinite(A.data).all() or (A.data <= 0).any():
        yield "an entry is not a finite number above zero"


def symmetry_balance(A: sparse.csr_matrix, *, first_row: int) -> int:
    """Hash sum of the entries above the diagonal minus that of those below.

    Added up over all blocks, modulo 2⁶⁴, it is 0 for a symmetric A, and 0 for any other with
    probability 2⁻⁶⁴: symmetry is seen in one pass, without a transpose.
    """
    n = A.shape[1]
    rows = np.repeat(np.arange(first_row, first_row + A.shape[0]), np.diff(A.indptr))
    columns = A.indices.astype(np.int64)
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    bits = A.data.astype(np.float64).view(np.uint64)
    hashes = _mix((low * n + high).astype(np.uint64) ^ _mix(bits))
    above, below = (int(hashes[side].sum(dtype=np.uint64)) for side in (rows < columns, rows > columns))
    return (above - below) % 2**64


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): each input bit moves all output bits."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
