"""Matrices as sources of an import: in memory, or in files that are read into memory."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist.engine import machine
from snmf_dist.errors import DoesNotFit, InputError, SnmfError
from snmf_dist.graph.ingest.edges import Edges, EdgeSource, expand, row_ranges
from snmf_dist.ids import Ids
from snmf_dist.untrusted import check_archive, check_nodes, load_sparse, native, safe_sparse

MARKET_BYTES = 32  # of memory that an entry of a Matrix Market file takes while it is read


def from_matrix(matrix: Any, origin: str, ids: Ids | None = None) -> EdgeSource:
    """A square matrix of this process; `ids` are the names of its rows."""
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        shape = " × ".join(map(str, matrix.shape))
        raise InputError(f"{origin}: A is {shape}; expected a square matrix of similarities")
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"{origin}: A has dtype {matrix.dtype}; expected real numbers")
    if isinstance(matrix, np.ma.MaskedArray):
        raise InputError(f"{origin}: is a masked array; fill or drop its masked entries first")
    if sparse.issparse(matrix):
        check_nodes(matrix.shape[0], matrix.nnz, origin, given=True)
        matrix = safe_sparse(matrix, origin)
    if matrix.dtype.kind != "f" or matrix.dtype.itemsize not in (4, 8):
        matrix = matrix.astype(np.float64)  # small types would wrap when repeated entries add up
    A = sparse.csr_array(native(matrix))

    def batches() -> Iterator[Edges]:
        for rows in row_ranges(A.indptr):
            entries = slice(A.indptr[rows.start], A.indptr[rows.stop])
            yield expand(A.indptr, rows, A.indices[entries], A.data[entries])

    return EdgeSource(A.shape[0], A.nnz, batches, {"source": origin}, ids=ids)


def from_npz(path: str) -> EdgeSource:
    """A matrix saved by scipy.sparse.save_npz, or arrays src, dst (and weight, n) of edges."""
    try:
        check_archive(path)
        with np.load(path, allow_pickle=False) as file:
            names = set(file.files)
            if "format" in names:
                return from_matrix(load_sparse(path), os.path.basename(path))
            arrays = {name: file[name] for name in ("src", "dst", "weight", "n") if name in names}
    except SnmfError:
        raise
    except Exception as error:  # whatever NumPy, SciPy, zipfile and zlib raise on a damaged file
        raise InputError(f"{path}: cannot be read as a .npz of plain arrays ({error})") from error
    if not {"src", "dst"} <= names:
        raise InputError(f"{path}: holds {sorted(names)}; expected scipy.sparse.save_npz's arrays, or src and dst")
    src, dst = arrays["src"], arrays["dst"]
    weight = arrays.get("weight", np.ones(src.shape))
    if src.dtype.kind not in "iu" or dst.dtype.kind not in "iu" or weight.dtype.kind not in "biuf":
        raise InputError(f"{path}: expected src and dst as whole numbers, and weight as numbers")
    if src.ndim != 1 or not src.shape == dst.shape == weight.shape:
        raise InputError(f"{path}: expected as many src and dst as weights, in vectors")
    count = arrays.get("n", np.array(max((int(ends.max()) for ends in (src, dst) if len(ends)), default=-1) + 1))
    if count.shape != () or count.dtype.kind not in "iuO":
        raise InputError(f"{path}: n is {str(count)[:40]}; expected a whole number")
    n = int(count)
    check_nodes(n, len(src), path, given="n" in arrays)
    edges = Edges(src.astype(np.int64), dst.astype(np.int64), weight.astype(np.float64))
    return EdgeSource(n, len(src), lambda: iter([edges]), {"source": os.path.basename(path)})


def from_matrix_market(path: str) -> EdgeSource:
    """A Matrix Market file."""
    from scipy.io import mminfo, mmread

    try:
        rows, _, entries, *_ = mminfo(path)
        check_nodes(rows, entries, path, given=True)
        packed = path.lower().endswith((".gz", ".bz2"))
        if not packed and entries > os.path.getsize(path):  # an entry takes two bytes at least
            raise InputError(f"{path}: claims {entries} entries, more than it has bytes; make it again")
        if entries * MARKET_BYTES > machine.memory():
            raise DoesNotFit(
                f"{path}: its {entries} entries do not fit into memory; write them as an edge list, which is read "
                "in pieces"
            )
        matrix = mmread(path)
    except SnmfError:
        raise
    except Exception as error:  # ValueError, OverflowError, those of gzip and bz2, ...
        raise InputError(f"{path}: cannot be read as Matrix Market ({error})") from error
    return from_matrix(matrix, os.path.basename(path))
