"""Arrays of our stores, believed only when they are what the manifest says.

The manifest, the attribute block that `storage` writes last, has a checksum of its own. The metadata document of
an array, its zarr.json, has none: shape and type in it are compared with the manifest before anything is
allocated, and the bytes with their checksum after they were read. Whatever passes both is what was written.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import zarr

from snmf_dist import storage
from snmf_dist.errors import SnmfError, StoreCorrupt

SMALL_CHUNK = 1 << 10  # entries: an array cut into smaller chunks than we write would take hours to read


@contextmanager
def explaining(path: str, kind: str, checksum: int, options: storage.Options, *, remedy: str) -> Iterator[None]:
    """End an error of the body that says what is wrong with a store by what to do, or say that it was replaced.

    Parameters
    ----------
    path : str
        Path or URL of the store.
    kind : str
        What the store is: a graph, a result or a checkpoint.
    options : mapping or None
        Passed to fsspec for URLs.
    checksum : int
        Checksum of the attribute block that it was opened with.
    remedy : str
        What to do if it is damaged.
    """
    try:
        yield
    except StoreCorrupt as error:
        if storage.was_replaced(path, kind, checksum, options):
            raise StoreCorrupt(f"{path}: the {kind} was replaced while it was in use; open it again") from error
        raise StoreCorrupt(f"{error}; {remedy}") from error


def find_array(
    group: zarr.Group, name: str, path: str, *, shape: Sequence[int | None], dtypes: Sequence[Any]
) -> zarr.Array:
    """Open an array of a store if its metadata is as expected; nothing of it is read.

    Parameters
    ----------
    group : zarr.Group
        The store.
    name : str
        Name of the array, for the error.
    path : str
        Path of the store, for the error.
    shape : sequence of int or None
        The shape that the manifest claims; None for a length that it does not.
    dtypes : sequence of dtype
        The types that the array may have.

    Raises
    ------
    StoreCorrupt
        The array is missing, its zarr.json cannot be read, or claims another shape or type.
    """
    try:
        array: Any = group[name]
    except KeyError:
        raise StoreCorrupt(f"{path}: {name} is missing") from None
    except Exception as error:  # whatever a torn zarr.json makes zarr raise
        raise StoreCorrupt(f"{path}: the zarr.json of {name} cannot be read ({_brief(error)})") from error
    if not isinstance(array, zarr.Array):
        raise StoreCorrupt(f"{path}: {name} is a group; expected an array")
    wanted = tuple(found if one is None else one for one, found in zip(shape, array.shape, strict=False))
    if len(array.shape) != len(shape) or array.shape != wanted:
        raise StoreCorrupt(f"{path}: {name} is missing entries: has shape {array.shape}; expected {tuple(shape)}")
    if array.dtype not in [np.dtype(one) for one in dtypes]:
        expected = " or ".join(str(np.dtype(one)) for one in dtypes)
        raise StoreCorrupt(f"{path}: {name} has type {array.dtype}; expected {expected}")
    if array.nchunks > 64 + array.size // SMALL_CHUNK and array.shape[0] > array.nchunks:
        raise StoreCorrupt(f"{path}: {name} is cut into {array.nchunks} chunks, smaller than any that we write")
    return array


def read_range(array: zarr.Array, start: int, stop: int, path: str, name: str) -> np.ndarray:
    """Read entries or rows of an array that `find_array` found; what cannot be decoded is reported."""
    try:
        return np.asarray(array[start:stop])
    except SnmfError:
        raise
    except Exception as error:  # codecs raise RuntimeError, ValueError, zstd's own errors, ...
        raise StoreCorrupt(f"{path}: {name} cannot be read from {start} to {stop} ({_brief(error)})") from error


def read_whole(array: zarr.Array, crc: Any, path: str, name: str) -> np.ndarray:
    """Read an array whole and compare it with its checksum."""
    values = read_range(array, 0, array.shape[0], path, name)
    if storage.checksum(values) != crc:
        raise StoreCorrupt(f"{path}: {name} is not what was written (its checksum differs)")
    return values


class ChunkedVector:
    """A long vector of a store, read by ranges that are checked chunk by chunk.

    Parameters
    ----------
    array : zarr.Array
        As `find_array` found it.
    block : mapping
        The manifest, with checksums of the chunks. Stores of earlier versions have none: they are then taken in
        one pass over the vector, a chunk in memory at a time, which also checks the whole.
    path : str
        Path of the store, for errors.
    name : str
        Name of the vector, for errors.
    """

    def __init__(self, array: zarr.Array, block: Mapping[str, Any], path: str, name: str) -> None:
        self.array, self.path, self.name = array, path, name
        self.size = int(array.chunks[0])
        chunks = block.get("chunk_checksums", {}).get(name)
        if chunks is None:
            chunks = self._take(block["checksums"][name])
        if len(chunks) != -(-array.shape[0] // self.size):
            raise StoreCorrupt(f"{path}: {name} is not cut into chunks as the manifest says")
        self.chunks = chunks

    def _take(self, crc: int) -> list[int]:
        chunks, whole = [], 0
        for start in range(0, self.array.shape[0], self.size):
            values = read_range(self.array, start, start + self.size, self.path, self.name)
            chunks.append(storage.checksum(values))
            whole = storage.checksum(values, begin=whole)
        if whole != crc:
            raise StoreCorrupt(f"{self.path}: {self.name} is not what was written (its checksum differs)")
        return chunks

    def read(self, start: int, stop: int) -> np.ndarray:
        """Entries `start` to `stop`; the chunks that they lie in are read whole."""
        parts = []
        for i in range(start // self.size, -(-stop // self.size)):
            low = i * self.size
            values = read_range(self.array, low, low + self.size, self.path, self.name)
            if storage.checksum(values) != self.chunks[i]:
                raise StoreCorrupt(
                    f"{self.path}: {self.name} is not what was written: the checksum of entries "
                    f"{low}:{low + len(values)} differs"
                )
            parts.append(values[max(start - low, 0) : stop - low])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def attributes(group: zarr.Group, name: str) -> dict[str, Any] | None:
    """Attributes of a group within a store; None if it is missing or cannot be read."""
    try:
        return dict(group[name].attrs)
    except Exception:  # KeyError, or whatever a torn zarr.json makes zarr raise
        return None


def chunk_checksums(group: zarr.Group, name: str, values: np.ndarray) -> list[int]:
    """Checksums of the chunks of a vector that was just written, for `ChunkedVector`."""
    array: Any = group[name]
    size = int(array.chunks[0])
    return [storage.checksum(values[start : start + size]) for start in range(0, len(values), size)]


def _brief(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
