"""AnnData on disk, in Zarr or HDF5, read without AnnData: its matrices, and the names of its observations."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import zarr

from snmf_dist import hdf5, storage
from snmf_dist.errors import GraphWarning, InputError
from snmf_dist.ids import Ids, ids_of_names
from snmf_dist.untrusted import refuse_code

SPARSE = ("csr_matrix", "csc_matrix")
CSR_ARRAYS = ("data", "indices", "indptr")


@contextmanager
def open_annotated(path: str, options: storage.Options = None) -> Iterator[Any]:
    """The group at `path`, of zarr or of h5py; open while it is used."""
    if hdf5.is_hdf5(path):
        with hdf5.open_hdf5(path) as file:
            yield file
    else:
        yield storage.open_group(path, options)


def child(group: Any, name: str, path: str) -> Any:
    """What a group holds under `name`, or None."""
    if isinstance(group, zarr.Group):
        return group.get(name)
    return hdf5.member(group, name, path)


def choose_key(group: Any, path: str, field: str, key: str | None) -> str:
    """Return `key`, or the only one that a field has."""
    found = child(group, field, path)
    keys = sorted(found.keys()) if found is not None else []
    if key is None and len(keys) == 1:
        return str(keys[0])
    if key is None or key not in keys:
        asked = f"no {field}/{key}" if key else "more than one matrix, or none"
        raise InputError(f"{path}: {asked}; {field} has {keys}: pass key= (--key) with one of them")
    return key


def sparse_shape(matrix: Any, path: str, name: str) -> tuple[int, int]:
    """The shape of a sparse matrix, when its arrays are there and whole."""
    try:
        rows, columns = (int(size) for size in matrix.attrs["shape"])
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: {name} has no shape of two numbers; write it again") from None
    for part in CSR_ARRAYS:
        array = child(matrix, part, path)
        if array is None or not hasattr(array, "dtype") or array.dtype.kind not in "biuf" or array.ndim != 1:
            raise InputError(f"{path}: {name}/{part} is missing or does not hold numbers; restore it")
        check_array(array, path, f"{name}/{part}")
    return rows, columns


def check_array(array: Any, path: str, name: str) -> Any:
    """Return an array, unless it runs code, lies elsewhere, or has lost a part."""
    if not isinstance(array, zarr.Array):
        return hdf5.check_dataset(array, path)
    if refuse_code(array, path).nchunks_initialized < array.nchunks:
        raise InputError(f"{path}: {name} has lost chunks, which would read as zeros; restore it")
    return array


def row_pointers(matrix: Any, path: str, name: str, count: int) -> np.ndarray:
    """Where the `count` rows of a sparse matrix begin and the last one ends, checked."""
    if matrix["indptr"].shape != (count + 1,) or matrix["data"].shape != matrix["indices"].shape:
        raise InputError(f"{path}: the arrays of {name} do not fit each other; restore it")
    indptr = np.asarray(matrix["indptr"][:], dtype=np.int64)
    if indptr[0] != 0 or indptr[-1] != matrix["indices"].size or (np.diff(indptr) < 0).any():
        raise InputError(f"{path}: {name}/indptr does not rise from 0 to the number of entries; restore it")
    return indptr


def obs_ids(group: Any, path: str, n: int | None = None) -> Ids | None:
    """The names of the observations, if they are not just row numbers; None too where they cannot be ids."""
    obs = child(group, "obs", path)
    index = obs.attrs.get("_index") if obs is not None and hasattr(obs, "attrs") else None
    names = child(obs, str(index), path) if index is not None else None
    if names is None or not hasattr(names, "shape") or len(names.shape) != 1 or n not in (None, *names.shape):
        return None
    if isinstance(names, zarr.Array):
        values = refuse_code(names, path)[:]
    elif names.is_virtual or names.external or names.dtype.kind not in "OSiu":
        return None
    else:
        values = names.asstr()[:] if names.dtype.kind in "OS" else names[:]
    return named(values, f"{os.path.basename(path.rstrip('/'))} obs")


def named(values: Any, origin: str) -> Ids | None:
    """Ids of names that nobody asked for: names that repeat are left out, with a warning."""
    try:
        return ids_of_names(values, origin)
    except InputError as error:
        warnings.warn(f"{error}; rows go by their numbers", GraphWarning, stacklevel=2)
        return None
