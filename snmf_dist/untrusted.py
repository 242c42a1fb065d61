"""Files and arrays of users, looked at before they are believed.

Nothing in them may crash the process, run code, or take more memory than there is.
"""

import os
import zipfile
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist.engine import machine
from snmf_dist.errors import DoesNotFit, InputError

SPARSE_IDS = 100  # nodes for each edge, at most, unless the user says how many there are
FEW = 1000  # nodes that are never too many
ROW_BYTES = 64  # of the vectors that an import keeps for each node
CODE_CODECS = {"pickle"}  # of Zarr 2: they run what they read


def native(array: Any) -> Any:
    """The array, or sparse matrix, in this machine's byte order; compiled code knows no other."""
    if array.dtype.isnative:
        return array
    return array.astype(array.dtype.newbyteorder("="))


def safe_sparse(matrix: Any, origin: str) -> Any:
    """Return a sparse matrix whose row and column numbers lie within it, or say that they do not.

    SciPy does not look at them when a matrix is made from its arrays or read from a file, and crashes later.
    """
    if getattr(matrix, "format", None) in ("csr", "csc", "bsr"):
        starts = matrix.indptr.astype(np.int64)  # SciPy takes differences in int32, which may overflow
        if starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] > len(matrix.indices):
            raise InputError(f"{origin}: is not a valid sparse matrix (its indptr does not rise); make it again")
        try:
            matrix.check_format(full_check=True)
        except (ValueError, IndexError) as error:
            raise InputError(f"{origin}: is not a valid sparse matrix ({error}); make it again") from error
    elif getattr(matrix, "format", None) == "coo" and matrix.nnz:
        for numbers, size in zip(matrix.coords, matrix.shape, strict=True):
            if numbers.min() < 0 or numbers.max() >= size:
                raise InputError(f"{origin}: is not a valid sparse matrix (an index is not within 0:{size})")
    return matrix


def are_sparse(n: int, n_edges: int) -> bool:
    """Tell whether n nodes are out of all proportion to the number of edges."""
    return n > FEW + SPARSE_IDS * n_edges


def check_nodes(n: int, n_edges: int, origin: str, *, given: bool) -> None:
    """Refuse a number of nodes that is out of all proportion, before anything of that size is made.

    Parameters
    ----------
    n : int
        Number of nodes.
    n_edges : int
        Number of edges.
    origin : str
        Where they are from, for the error.
    given : bool
        Whether the user gave the number of nodes; else the largest id decided.
    """
    if not given and are_sparse(n, n_edges):
        raise InputError(
            f"{origin}: node ids reach {n - 1} but there are only {n_edges} edges; number the nodes from 0 "
            "without gaps, or pass n= if that many nodes are meant"
        )
    if n * ROW_BYTES > machine.memory():
        raise DoesNotFit(
            f"{origin}: has {n} nodes, whose degrees and order alone take {n * ROW_BYTES / 1e9:.0f} GB, more than "
            "this machine has; number the nodes from 0 without gaps, or import on a larger machine"
        )


def check_archive(path: str) -> None:
    """Refuse a ``.npz`` file that would take more memory than may be used, or holds Python objects.

    Raises
    ------
    InputError
        Its arrays are not what the file's own directory says, or need pickle.
    DoesNotFit
        Unpacked it is larger than half of the machine's memory.
    """
    limit = machine.memory_limit(None)
    with zipfile.ZipFile(path) as archive:
        members = [one for one in archive.infolist() if one.filename.endswith(".npy")]
        size = sum(one.file_size for one in members)
        if size > limit:
            raise DoesNotFit(
                f"{path}: takes {os.path.getsize(path) / 1e6:.1f} MB and unpacks to {size / 1e9:.1f} GB, more "
                f"than the {limit / 1e9:.1f} GB that may be used; write it as Zarr, which is read in pieces"
            )
        for one in members:
            with archive.open(one) as file:
                shape, dtype = _header(file)
            if dtype.hasobject:
                raise InputError(f"{path}: {one.filename} holds Python objects; expected plain numbers")
            if int(np.prod(shape, dtype=object)) * dtype.itemsize > one.file_size:
                raise InputError(f"{path}: {one.filename} claims shape {shape}, more than it holds; make it again")


def _header(file: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type that a ``.npy`` file claims."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def load_sparse(path: str) -> Any:
    """A sparse matrix that ``scipy.sparse.save_npz`` wrote, checked before and after it is read."""
    check_archive(path)
    return safe_sparse(sparse.load_npz(path), os.path.basename(path))


def refuse_code(array: Any, path: str) -> Any:
    """Return a Zarr array of a user, unless reading it would run code that the file holds."""
    metadata = array.metadata
    if metadata.zarr_format == 2:
        codecs = [*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else ())]
        found = [codec.codec_id for codec in codecs if getattr(codec, "codec_id", "") in CODE_CODECS]
        if found:
            raise InputError(
                f"{path}: its chunks are Python objects ({found[0]}), which may run code when they are "
                "read; write it again without"
            )
    return array
