"""What must hold of a graph store: of its manifest, and of its row blocks, one at a time."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist.errors import StoreCorrupt


def manifest_problems(block: Mapping[str, Any]) -> Iterator[str]:
    """Say what is wrong with the attribute block of a graph, in words, before anything is read by it."""
    kinds = {"n": int, "nnz": int, "normalize": str, "reordered": bool, "zero_degree": int, "self_loops": int}
    for name, kind in {**kinds, "blocks": list, "checksums": dict, "made": dict}.items():
        if type(block.get(name)) is not kind:
            yield f"{name} is {str(block.get(name))[:40]}; expected a {kind.__name__}"
            return
    n, nnz, blocks = block["n"], block["nnz"], block["blocks"]
    if block.get("dtype") not in ("float32", "float64"):
        yield f"dtype is {block.get('dtype')}; expected float32 or float64"
    if not (n >= 1 and nnz >= 1 and 1 <= len(blocks) <= n):
        yield f"there are {n} rows, {nnz} entries and {len(blocks)} blocks; expected at least one of each"
    if not all(isinstance(one, list) and list(map(type, one)) == [int] * 4 and one[0] >= 0 for one in blocks):
        yield "blocks is not a list of four numbers for each block"
    elif sum(one[0] for one in blocks) != nnz:
        yield "the blocks' entries do not add up to nnz"
    if not all(type(block["checksums"].get(name)) is int for name in ("row_bounds", "order", "degree")):
        yield "checksums has not one for each of row_bounds, order and degree"


def safe_pattern(indptr: np.ndarray, indices: np.ndarray, n: int) -> bool:
    """Tell whether no row or column number of a CSR block points outside it; compiled kernels do not look.

    Two passes over the pattern; the benchmark ``checkpoints`` says what share of reading a block they are.
    """
    if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        return False
    # negative numbers are the largest of all when they are read as unsigned: one pass instead of two
    return bool(len(indices) == 0 or int(indices.view(f"u{indices.itemsize}").max()) < n)


def block_problems(A: sparse.csr_matrix) -> Iterator[str]:
    """Say what is wrong with a CSR row block whose pattern is safe, in words."""
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


def entry_problems(
    read_block: Callable[[int], sparse.csr_matrix], bounds: np.ndarray, progress: Callable[[str, int, int], None]
) -> Iterator[str]:
    """Read every block of a graph, and say what is wrong with its entries.

    Parameters
    ----------
    read_block : callable
        Reads block i, and raises `StoreCorrupt` if it is not what was written.
    bounds : ndarray of int, (P + 1,)
        Where the blocks begin and end.
    progress : callable
        Called as ``progress(stage, done, total)``.
    """
    balance, whole, blocks = 0, True, len(bounds) - 1
    for i in range(blocks):
        progress("check", i, blocks)
        try:
            A = read_block(i)
        except StoreCorrupt as error:
            whole = False
            yield str(error)
            continue
        yield from (f"block {i}: {text}" for text in block_problems(A))
        balance += symmetry_balance(A, first_row=int(bounds[i]))
    progress("check", blocks, blocks)
    if whole and balance % 2**64:
        yield "A is not symmetric"
