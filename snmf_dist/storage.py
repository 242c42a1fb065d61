"""What all our Zarr stores share: a versioned attribute block, completeness, checksums.

Each store is one Zarr v3 group whose attributes hold ``{"snmf_dist": {"kind": ..., "version": 1,
"complete": true, ...}}``. The block is written last, so a store that was cut off while being
written has none, or one that does not say ``complete``. What the block and the arrays mean is
the business of ``graph/store/`` and ``result/files.py``.
"""

import ctypes
import json
import os
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

import fsspec
import numpy as np
import zarr
import zarr.errors
from zarr.codecs import BloscCodec

from snmf_dist.credentials import without_secrets
from snmf_dist.errors import (
    GraphWarning,
    NoRoom,
    NotOurStore,
    SnmfError,
    StoreCorrupt,
    StoreExists,
    StoreIncomplete,
    StoreNotFound,
    StoreVersionError,
    is_full,
)

BLOCK = "snmf_dist"
VERSION = 1
PARTIAL = ".partial"
CHUNK = 1 << 20  # entries at most in a chunk of a long vector: 4 to 8 MB; smaller and larger ones read slower
# By tests/benchmarks/codec.py on a 1M-row neighbour graph, one thread, files in the page cache: weights come at
# 1280 and column numbers at 1370 MB/s and take .85 and .52 of their bytes; raw they come at 2700 and 2250, with
# zstd, zarr's default, at 680 and 550 in .88 and .62. Against raw it pays on storage below 350 and 1700 MB/s, and
# a graph that is read again and again is one that memory, and so the page cache, does not hold.
CODEC = BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")

Options = Mapping[str, Any] | None


def normal_path(path: str | os.PathLike[str]) -> str:
    """Return a local path as an absolute one, ``file://`` taken off and ``~`` expanded; other URLs as they are.

    Workers of a cluster have a working directory of their own, so no relative path leaves here.
    """
    text = os.fspath(path).removeprefix("file://")
    return text if is_url(text) else os.path.abspath(os.path.expanduser(text))


def is_url(path: str) -> bool:
    """Tell whether `path` goes through fsspec and not through the local file system."""
    return "://" in path


def open_group(path: str, options: Options = None, mode: Literal["r", "r+"] = "r") -> zarr.Group:
    """Open whatever Zarr group is at `path`; its arrays are found by their own metadata, not by a copy of it."""
    try:
        return zarr.open_group(path, mode=mode, storage_options=plain(options), use_consolidated=False)
    except zarr.errors.ContainsArrayError:
        raise NotOurStore(
            f"{path}: found a Zarr array, expected a store of snmf_dist; if it holds points, build their graph "
            "with snmf_dist.build_graph (snmf-dist graph)"
        ) from None
    except zarr.errors.GroupNotFoundError:
        if is_url(path):
            raise StoreNotFound(f"{path}: no Zarr group found; check the URL") from None
        raise NotOurStore(
            f"{path}: not a Zarr group, expected a store of snmf_dist; if it holds edges, or a graph of another "
            "kind, make a store with snmf_dist.import_graph (snmf-dist import)"
        ) from None
    except FileNotFoundError:
        raise StoreNotFound(f"{path}: no such file or directory; check the path") from None
    except Exception as error:
        if is_url(path):
            _refuse_unreachable(path, error, options)
        raise StoreCorrupt(
            f"{path}: its zarr.json cannot be read ({type(error).__name__}: {error}); write the store again, or "
            "restore it from a copy"
        ) from error


def read_block(group: zarr.Group, path: str, kind: str) -> dict[str, Any]:
    """Check that `group` is a finished store of `kind`, and return its attribute block."""
    block = group.attrs.get(BLOCK)
    if not isinstance(block, dict) or group.metadata.zarr_format != 3:  # codecs of Zarr 2 may run code
        raise NotOurStore(
            f"{path}: this Zarr group is not a {kind} store of snmf_dist (its attributes have no "
            f"'{BLOCK}'); if a graph, make one with snmf_dist.import_graph"
        )
    if block.get("kind") != kind:
        raise NotOurStore(f"{path}: found a {block.get('kind')} store, expected a {kind} store")
    if block.get("version") != VERSION:
        raise StoreVersionError(
            f"{path}: written in format version {block.get('version')}, this snmf_dist reads "
            f"version {VERSION}; upgrade snmf-dist, or write the store again"
        )
    if block.get("complete") is not True:
        raise StoreIncomplete(f"{path}: this {kind} store was not finished; write it again with overwrite=True")
    if block.get("checksum") != _block_checksum(block):
        raise StoreCorrupt(
            f"{path}: its attributes are not what was written; write the store again, or restore it from a copy"
        )
    return block


def was_replaced(path: str, kind: str, checksum: int, options: Options = None) -> bool:
    """Tell whether the store at `path` is no longer the one whose attribute block has this checksum."""
    try:
        return bool(read_block(open_group(path, options), path, kind)["checksum"] != checksum)
    except SnmfError:
        return True


def _block_checksum(block: Mapping[str, Any]) -> int:
    text = json.dumps({key: block[key] for key in block if key != "checksum"}, sort_keys=True)
    return zlib.crc32(text.encode())


def kind_of(group: zarr.Group) -> str | None:
    """Return the kind of our store that `group` is, or None if it is not ours."""
    block = group.attrs.get(BLOCK)
    return block.get("kind") if isinstance(block, dict) else None


def create_group(path: str, kind: str, *, options: Options = None) -> zarr.Group:
    """Start a store of `kind` that does not say ``complete`` yet; what is at `path` is lost."""
    start: Any = {BLOCK: {"kind": kind, "version": VERSION, "complete": False}}
    return zarr.open_group(path, mode="w", zarr_format=3, attributes=start, storage_options=plain(options))


def finish_group(group: zarr.Group, kind: str, block: Mapping[str, Any]) -> None:
    """Write the attribute block that makes the store a whole one; the last write of all."""
    whole = {"kind": kind, "version": VERSION, "complete": True, **block}
    group.attrs[BLOCK] = {**whole, "checksum": _block_checksum(whole)}


def flush(path: str) -> None:
    """Have all files below a local path, and its own name, reach the disk; a URL's store does that itself."""
    if is_url(path):
        return
    for folder, _, names in os.walk(path):
        for name in (*(os.path.join(folder, name) for name in names), folder):
            _flush_one(name)
    _flush_one(os.path.dirname(path))


def _flush_one(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_free(path: str, kind: str, *, overwrite: bool, options: Options = None) -> None:
    """Refuse an output path that cannot be written to, or is taken.

    ``overwrite`` gives up a store of ours of the same `kind`, and nothing else. At a URL, where nothing can be
    moved into place, so does a store that was never finished: a killed run left it.
    """
    if not is_url(path):
        _check_parent(path)
    if not exists(path, options):
        return
    try:
        group = open_group(path, options)
        found = kind_of(group)
    except SnmfError:
        found = None
    if found == kind and is_url(path) and _is_unfinished(group):
        return
    if found != kind:
        what = f"holds a {found} store" if found else "exists and is not a store of snmf_dist"
        raise StoreExists(
            f"{path}: {what}, so a {kind} store is not written over it; choose another path, or remove it yourself"
        )
    if not overwrite:
        raise StoreExists(f"{path}: already exists; choose another path, or pass overwrite=True (--overwrite)")


def _is_unfinished(group: zarr.Group) -> bool:
    block: Any = group.attrs[BLOCK]
    return block.get("complete") is not True


@contextmanager
def naming_full_disk(path: str, then: str) -> Iterator[None]:
    """Let an error of the body for a disk that is full name the output `path`, and say what to do then.

    At a URL the disk that is full holds temporary files, and the error stays as it is.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, SnmfError) or is_url(path) or not is_full(error):
            raise
        raise NoRoom(f"{path}: no room is left on its disk; free some room, and {then}") from error


@contextmanager
def replacing(path: str, kind: str, *, overwrite: bool, options: Options = None) -> Iterator[str]:
    """Give a place to write; move it to `path` if the body succeeds, and remove it if not.

    Whatever stood at `path` stays whole until the new store is. Object stores have no rename: for a
    URL the place is `path` itself, and what stood there is lost when the body begins to write.
    """
    check_free(path, kind, overwrite=overwrite, options=options)
    if is_url(path):
        yield path
        return
    parent, name = os.path.split(path)
    left = [entry for entry in os.listdir(parent) if entry.startswith(f".{name}.") and entry.endswith(PARTIAL)]
    if left:
        warnings.warn(
            f"{os.path.join(parent, left[0])}: left by a run that was killed, or is still going; remove it if "
            "none is",
            GraphWarning,
            stacklevel=4,
        )
    work = tempfile.mkdtemp(prefix=f".{name}.", suffix=PARTIAL, dir=parent)
    fresh, old = os.path.join(work, "new"), os.path.join(work, "old")
    try:
        yield fresh
        check_free(path, kind, overwrite=overwrite)  # again: another run may have been faster
        _put_in_place(fresh, path, old)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _put_in_place(fresh: str, path: str, old: str) -> None:
    """Move `fresh` to `path`. What stood there changes places with it, so that a reader finds one or the other."""
    if not os.path.lexists(path):
        os.rename(fresh, path)
    elif not _exchange(fresh, path):
        os.rename(path, old)  # for a moment nothing is at `path`
        try:
            os.rename(fresh, path)
        except OSError:
            os.rename(old, path)
            raise


def _exchange(one: str, other: str) -> bool:
    """Let two paths change places at once; False where that cannot be done. Linux can, on most file systems."""
    swap = getattr(ctypes.CDLL(None), "renameat2", None)
    if swap is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(swap(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def _check_parent(path: str) -> None:
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        raise StoreNotFound(f"{parent}: no such directory; make it first")
    if not os.access(parent, os.W_OK):
        raise StoreNotFound(f"{parent}: cannot be written to; choose another place")
    inside = parent
    while inside != os.path.dirname(inside):
        if any(os.path.exists(os.path.join(inside, name)) for name in ("zarr.json", ".zarray", ".zgroup")):
            raise StoreExists(f"{path}: lies inside the Zarr store {inside}; choose a place outside it")
        inside = os.path.dirname(inside)


def exists(path: str, options: Options = None) -> bool:
    """Tell whether anything is at `path`, a local one or a URL."""
    if not is_url(path):
        return os.path.lexists(path)
    try:
        files, place = fsspec.core.url_to_fs(path, **(plain(options) or {}))
        return bool(files.exists(place))
    except Exception as error:
        _refuse_unreachable(path, error, options)


def file_system(path: str, options: Options = None) -> tuple[Any, str]:
    """The file system of fsspec that a path or URL is in, and its place there."""
    try:
        files, place = fsspec.core.url_to_fs(path, **(plain(options) or {}))
    except Exception as error:  # a package that is not installed, or a protocol that there is not
        _refuse_unreachable(path, error, options)
    return files, place


def _refuse_unreachable(path: str, error: Exception, options: Options) -> NoReturn:
    text = without_secrets(str(error), options)
    cause = error if text == str(error) else None  # a traceback would show what it says
    why = f"{type(error).__name__}: {text}"
    raise StoreNotFound(f"{path}: cannot be opened ({why}); {next_move(error)}") from cause


def next_move(error: Exception) -> str:
    """What to do about a URL that cannot be opened.

    Examples
    --------
    >>> next_move(ImportError("Install s3fs to access S3"))
    'install snmf-dist[s3]'
    """
    if isinstance(error, ImportError):
        return "install snmf-dist[s3]" if "s3fs" in str(error) else "install that package"
    return "check the URL"


def write_vector(group: zarr.Group, name: str, values: np.ndarray) -> int:
    """Write a 1-D array in equal chunks and return its checksum."""
    chunks = max(-(-len(values) // CHUNK), 1)  # equal, for the last one is stored in full too
    array = group.create_array(
        name,
        shape=values.shape,
        dtype=values.dtype,
        chunks=(max(-(-len(values) // chunks), 1),),
        compressors=CODEC,
        overwrite=True,
    )
    if len(values):
        array[:] = values
    return checksum(values)


def checksum(*arrays: np.ndarray, begin: int = 0) -> int:
    """CRC-32 of the bytes of `arrays`, one after the other, and after those whose checksum is `begin`.

    Examples
    --------
    >>> checksum(np.array([1, 2], dtype=np.int32)) == checksum(np.array([1, 2], dtype=np.int64))
    False
    """
    crc = begin
    for array in arrays:
        crc = zlib.crc32(np.ascontiguousarray(array).data, crc)
    return crc


def plain(options: Options) -> dict[str, Any] | None:
    """Options as zarr and fsspec want them: a dict, or None."""
    return dict(options) if options else None
