"""HDF5 files of users: opened for reading, and looked at before their arrays are believed.

A file may name other files (external links, external storage, virtual datasets); those are refused, so that a file
gives nothing but what it holds itself. h5py is an extra.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from snmf_dist import storage
from snmf_dist.errors import DoesNotFit, InputError, SnmfError, StoreNotFound

HDF5_SUFFIXES = (".h5ad", ".h5", ".hdf5")
LARGEST_CHUNK = 1 << 30  # bytes that a piece of an array may unpack to


def is_hdf5(path: str) -> bool:
    """Tell by its name whether `path` is an HDF5 file."""
    return path.lower().endswith(HDF5_SUFFIXES)


@contextmanager
def open_hdf5(path: str) -> Iterator[Any]:
    """A local file, opened for reading; whatever h5py raises of a damaged one becomes an error that names it."""
    with _open(path) as file:
        try:
            yield file
        except SnmfError:
            raise
        except (OSError, RuntimeError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
            raise InputError(f"{path}: cannot be read as HDF5 ({error}); restore it, or write it again") from error


def _open(path: str) -> Any:
    if storage.is_url(path):
        raise InputError(f"{path}: HDF5 is read from local paths only; copy it, or write it as Zarr")
    if not os.path.exists(path):
        raise StoreNotFound(f"{path}: no such file or directory; check the path")
    try:
        import h5py
    except ImportError:
        raise InputError(f"{path}: reading HDF5 needs h5py; install snmf-dist[hdf5]") from None
    try:
        return h5py.File(path, "r")
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as HDF5 ({error})") from error


def member(group: Any, name: str, path: str) -> Any:
    """What a file holds under `name`, or None; links to other files are refused."""
    import h5py

    for part in name.strip("/").split("/"):
        if not isinstance(group, h5py.Group) or part not in group:
            link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
            if not isinstance(link, h5py.ExternalLink):
                return None
        if isinstance(group.get(part, getlink=True), h5py.ExternalLink):
            raise InputError(f"{path}: {name} is a link to another file; copy the data into this one")
        group = group[part]
    return group


def check_dataset(dataset: Any, path: str) -> Any:
    """Return a dataset of numbers, unless it is somewhere else, incomplete, or too large to unpack."""
    name = dataset.name.strip("/")
    if dataset.is_virtual or dataset.external:
        raise InputError(f"{path}: {name} lies in another file; copy the data into this one")
    if dataset.dtype.kind not in "biuf":
        raise InputError(f"{path}: {name} has dtype {dataset.dtype}; expected real numbers")
    if dataset.chunks is None:
        whole = dataset.id.get_storage_size() >= dataset.size * dataset.dtype.itemsize
    else:
        if int(np.prod(dataset.chunks, dtype=object)) * dataset.dtype.itemsize > LARGEST_CHUNK:
            raise DoesNotFit(f"{path}: {name} is stored in pieces of more than 1 GiB; write it in smaller ones")
        pieces = [-(-size // chunk) for size, chunk in zip(dataset.shape, dataset.chunks, strict=True)]
        whole = dataset.id.get_num_chunks() >= int(np.prod(pieces, dtype=object))
    if not whole:
        raise InputError(f"{path}: {name} has parts that were never written; write it again")
    return dataset


def find_datasets(file: Any, path: str) -> list[str]:
    """The names of all 2-D datasets of numbers, deepest last; links are not followed."""
    import h5py

    found: list[str] = []

    def visit(name: str, thing: Any) -> None:
        if isinstance(thing, h5py.Dataset) and thing.ndim == 2 and thing.dtype.kind in "biuf":
            found.append(name)

    file.visititems(visit)
    return sorted(found, key=lambda name: (name.count("/"), name))
