"""Points in files of other programs: raw vectors with a short header, HDF5, and AnnData in HDF5 or Zarr."""

import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from snmf_dist import hdf5, storage
from snmf_dist.annotated_files import (
    CSR_ARRAYS,
    SPARSE,
    check_array,
    child,
    choose_key,
    open_annotated,
    row_pointers,
    sparse_shape,
)
from snmf_dist.engine import machine
from snmf_dist.errors import DoesNotFit, InputError
from snmf_dist.untrusted import native, safe_sparse

# as the billion-scale search benchmarks have them: n and d as uint32, then the vectors
BINARY_TYPES = {".fbin": "<f4", ".u8bin": "u1", ".i8bin": "i1"}
BINARY = tuple(BINARY_TYPES)
BINARY_HEADER = 8  # bytes


@dataclass(frozen=True)
class BinaryPoints:
    """A ``.fbin``, ``.u8bin`` or ``.i8bin`` file; mapped, not loaded."""

    path: str
    shape: tuple[int, int]
    dtype: np.dtype
    is_sparse: bool = False

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`."""
        found = np.memmap(self.path, dtype=self.dtype, mode="r", offset=BINARY_HEADER, shape=self.shape)[
            start:stop
        ]
        return np.asarray(native(found))


def open_binary(path: str) -> BinaryPoints:
    """A file of raw vectors, when it is as long as its header says."""
    if storage.is_url(path):
        raise InputError(
            f"{path}: {', '.join(BINARY)} are read from local paths only; copy it, or write it as Zarr"
        )
    dtype = np.dtype(BINARY_TYPES[os.path.splitext(path)[1]])
    size = os.path.getsize(path)
    header = np.fromfile(path, dtype="<u4", count=2).tolist() if size >= BINARY_HEADER else [0, 0]
    n, d = header
    if size != BINARY_HEADER + n * d * dtype.itemsize:
        raise InputError(
            f"{path}: its header says {n} vectors of {d} numbers ({dtype}), but it has {size}; "
            f"expected {BINARY_HEADER + n * d * dtype.itemsize}"
        )
    return BinaryPoints(path, (n, d), dtype)


@dataclass(frozen=True)
class Hdf5Points:
    """A 2-D dataset in an HDF5 file."""

    path: str
    name: str
    shape: tuple[int, int]
    dtype: np.dtype
    is_sparse: bool = False

    @property
    def how(self) -> dict[str, Any]:
        """What `open_points` must be told to open them again."""
        return {"key": self.name}

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`."""
        with hdf5.open_hdf5(self.path) as file:
            return np.asarray(native(hdf5.member(file, self.name, self.path)[start:stop]))


class Matrix(NamedTuple):
    """A matrix in a group: its name, shape and type, and its entries if it is sparse."""

    name: str
    shape: Any
    dtype: np.dtype
    sparse: Any = None


def find_matrix(path: str, key: str | None, options: storage.Options) -> Matrix:
    """The points in an HDF5 file or AnnData store; sparse ones are read.

    Parameters
    ----------
    key : str, optional
        A name in ``obsm``, or ``X``; in other HDF5 files the name of a dataset. Not needed where there is one.
    """
    with open_annotated(path, options) as group:
        name = _name_of(group, path, key)
        found = child(group, name, path)
        if hasattr(found, "shape") and hasattr(found, "dtype"):
            return Matrix(name, found.shape, check_array(found, path, name).dtype)
        encoding = found.attrs.get("encoding-type") if hasattr(found, "attrs") else None
        if encoding not in SPARSE:
            raise InputError(f"{path}: {name} is {encoding or 'no array'}; expected an array or a sparse matrix")
        matrix = _read_sparse(found, path, name, by_column=encoding == SPARSE[1])
        return Matrix(name, matrix.shape, matrix.dtype, matrix)


def matrix_of_object(adata: Any, key: str | None) -> tuple[str, Any]:
    """The points in an AnnData in memory, with their name; `key` as in `find_matrix`."""
    if key == "X":
        return key, adata.X
    if key is not None and key.startswith("layers/") and key.removeprefix("layers/") in adata.layers:
        return key, adata.layers[key.removeprefix("layers/")]
    keys = sorted(adata.obsm.keys())
    asked = key.removeprefix("obsm/") if key is not None else keys[0] if len(keys) == 1 else None
    if asked not in keys:
        found = f"no obsm/{asked}" if asked else "more than one matrix, or none"
        raise InputError(f'AnnData: {found}; obsm has {keys}: pass key= with one of them, or key="X"')
    return f"obsm/{asked}", adata.obsm[asked]


def _name_of(group: Any, path: str, key: str | None) -> str:
    """Where in the group the points are."""
    if child(group, "obsm", path) is not None:
        if key is not None and (key == "X" or key.startswith(("obsm/", "layers/"))) and child(group, key, path):
            return key
        return f"obsm/{choose_key(group, path, 'obsm', key)}"
    names = hdf5.find_datasets(group, path)
    if key is None and len(names) == 1:
        return names[0]
    if key is None or child(group, key, path) is None:
        raise InputError(
            f"{path}: {'no ' + key if key else 'more than one 2-D dataset of numbers, or none'}; it has {names}: "
            "pass key= (--key) with one of them"
        )
    return key


def _read_sparse(matrix: Any, path: str, name: str, *, by_column: bool) -> Any:
    """A sparse matrix as CSR, in memory."""
    shape = sparse_shape(matrix, path, name)
    size = sum(matrix[part].size * matrix[part].dtype.itemsize for part in CSR_ARRAYS)
    if 2 * size > machine.memory_limit(None):
        raise DoesNotFit(
            f"{path}: {name} takes {size / 1e9:.1f} GB, too much to read at once; use the dense coordinates "
            "in obsm, or write a part of the rows"
        )
    indptr = row_pointers(matrix, path, name, shape[1] if by_column else shape[0])
    kind = sparse.csc_matrix if by_column else sparse.csr_matrix
    parts = (matrix["data"][:], matrix["indices"][:], indptr)
    return sparse.csr_matrix(safe_sparse(kind(parts, shape=shape), f"{path}: {name}"))
