"""The graph store: a symmetric, nonnegative, sparse n × n matrix A in row blocks, in Zarr.

Layout, format version 1 (one Zarr v3 group)::

    attributes["snmf_dist"]        written last
        kind "graph", version 1, complete true
        n, nnz, dtype              rows, stored entries, "float32" or "float64"
        normalize                  "ncut" (A = D^-1/2 W D^-1/2) or "none" (A = W)
        tau                        added to each degree in "ncut": A = (D + tau I)^-1/2 W (D + tau I)^-1/2;
                                   0 if it is not there
        reordered                  false if order is 0, 1, ..., n-1
        zero_degree, self_loops    how many rows have no entry; how many diagonal entries
        checksums                  CRC-32 of row_bounds, order, degree, component and anchor
        chunk_checksums            CRC-32 of each chunk of the vectors of n entries; stores of 0.1 have none
        blocks                     one [nnz, CRC-32 of data, indices, indptr, diagonal, halo] a block:
                                   diagonal = entries within the block's own rows, halo = distinct other
                                   columns
        made                       how A was made, for people
        ids                        the user's own ids of the rows, if there are any: see `snmf_dist.ids`
    row_bounds   int64 (P+1,)      block i holds rows row_bounds[i]:row_bounds[i+1]
    order        int64 (n,)        row of A -> the user's own row number
    degree       float64 (n,)      row sums of W, before normalisation
    component    int32/int64 (n,)  number of the connected component of each row, 0 the largest; only in graphs of
                                   several, and not in stores of snmf-dist 0.1
    anchor       int32/int64 (n,)  for a row of a small component the row of A outside that it would be joined to,
                                   else -1; only in graphs built from points
    search/      float64           only of graphs built from points: scales (n,), σ of each row; shift and
                                   projection, flat, that points are transformed by; attributes: search
    blocks/<i>/                    a CSR matrix in AnnData's encoding
        attributes                 encoding-type "csr_matrix", encoding-version "0.1.0", shape
        data, indices, indptr      dtype; int32 (int64 if n needs it); int64

What holds: indices rise strictly within a row; A = Aᵀ to the last bit; entries are finite and > 0.
Each block is a group of its own, so that two writers never share a chunk. A missing Zarr chunk reads
as zeros without an error: every read is checked against the manifest's count and checksum. The manifest
is checked when the store is opened, and the shape and type of an array before it is read.
"""

from collections.abc import Callable

import numpy as np
from scipy import sparse

GRAPH = "graph"
CSR_ENCODING = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
BLOCK_ENTRIES = 1 << 21  # entries a block aims at: 25 MB in memory, a second or less to merge

StageProgress = Callable[[str, int, int], None]


def row_bounds(n: int, n_edges: int, block_rows: int | None = None) -> np.ndarray:
    """Bounds of row blocks of `block_rows` rows, or of about `BLOCK_ENTRIES` entries.

    Examples
    --------
    >>> row_bounds(10, 40, 4)
    array([ 0,  4,  8, 10])
    >>> row_bounds(10, 40)
    array([ 0, 10])
    """
    if block_rows is None:
        blocks = min(-(-n_edges // BLOCK_ENTRIES), n)
        block_rows = -(-n // max(blocks, 1))
    return np.append(np.arange(0, n, block_rows, dtype=np.int64), n)


def normalize(W: sparse.csr_matrix, root: np.ndarray, all_roots: np.ndarray) -> sparse.csr_matrix:
    """D^−½ W D^−½ of a row block: `root` is √degree of its rows, `all_roots` of all n rows.

    Dividing by the product of the roots keeps A symmetric to the last bit, and a degree is never
    below one of its own weights, so nothing is divided by zero.
    """
    rows = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
    data = W.data / (root[rows] * all_roots[W.indices])
    return sparse.csr_matrix((data, W.indices, W.indptr), shape=W.shape)


def silent(stage: str, done: int, total: int) -> None:
    """Report progress to nobody."""
