"""Edge lists in parts: a folder of CSV or Parquet files, as Spark and Dask write it, or a pattern with ``*``."""

import os
from typing import Any

from snmf_dist import storage
from snmf_dist.errors import InputError, StoreNotFound
from snmf_dist.graph.ingest.edgefiles import family, is_edge_file

ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")


def find_parts(path: str, options: storage.Options = None) -> list[str] | None:
    """The parts of an edge list in their order, if `path` is a folder of them or a pattern, else None."""
    fs, place = storage.file_system(path, options)
    pattern = any(mark in path for mark in "*?[") and not fs.exists(place)
    if not pattern and (not fs.isdir(place) or any(fs.exists(f"{place}/{name}") for name in ZARR_FILES)):
        return None
    found = fs.glob(place) if pattern else fs.find(place)
    files = [name for name in sorted(found) if not _hidden(name, "" if pattern else place) and fs.isfile(name)]
    parts = [name for name in files if is_edge_file(name)]
    if pattern and not files:
        raise StoreNotFound(f"{path}: no file has such a name; check the pattern")
    if not parts and not pattern:
        return None
    if len(parts) < len(files):
        odd = next(name for name in files if name not in parts)
        raise InputError(f"{path}: {os.path.basename(odd)} is no edge list beside those that are; take it away")
    families = sorted({family(name) for name in parts})
    if len(families) > 1:
        raise InputError(f"{path}: has parts of the kinds {' and '.join(families)}; expected one kind")
    return [_whole_name(fs, name, path) for name in parts]


def _hidden(name: str, folder: str) -> bool:
    """Whether a file, or a folder on the way to it, is one of those that begin with . or _, as ``_SUCCESS``."""
    inner = name[len(folder) :] if folder else os.path.basename(name)
    return any(part.startswith((".", "_")) for part in inner.split("/"))


def _whole_name(fs: Any, name: str, path: str) -> str:
    return str(fs.unstrip_protocol(name)) if storage.is_url(path) else name
