"""The user's own ids of rows, text or whole numbers, kept with a graph and with its results.

Layout in a store, layout version 1. The manifest has ``ids: {"layout": 1, "kind": "text" or "number", "n": ...,
"bytes": ..., "chunk_checksums": {...}}``, with the CRC-32 of each chunk of each array; the arrays, in the order of
the user's rows, are::

    ids/values    int64 (n,)         kind "number": the ids
    ids/offsets   int64 (n+1,)       kind "text": id i is the UTF-8 text of bytes offsets[i]:offsets[i+1]
    ids/bytes     uint8 (bytes,)

Ids are read by ranges, and written piece by piece, so that they need not fit into memory.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import zarr

from snmf_dist import storage, verified
from snmf_dist.arrowfiles import is_text, to_large_text
from snmf_dist.errors import InputError, StoreCorrupt

LAYOUT = 1
KINDS = ("text", "number")
PIECE = 1 << 18  # ids handled at a time


class Vector(Protocol):
    """A long vector that is read by ranges."""

    def read(self, start: int, stop: int) -> np.ndarray:
        """Entries `start` to `stop`."""


class HeldVector:
    """An array of this process, or a memory map, as a `Vector`."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def read(self, start: int, stop: int) -> np.ndarray:
        """Entries `start` to `stop`."""
        return np.asarray(self.values[start:stop])


class Ids:
    """The ids of n rows, each once; ``ids[3]``, ``ids[10:20]``, ``len(ids)``, ``np.asarray(ids)``, ``list(ids)``.

    Parameters
    ----------
    kind : {"text", "number"}
        Whether ids are ``str`` or whole numbers.
    n : int
        Number of ids.
    vectors : mapping
        "values" of numbers, or "offsets" and "bytes" of text.

    Examples
    --------
    >>> ids = make_ids(["käthe", "ludwig"])
    >>> ids[0], len(ids), ids.find(["ludwig", "nobody"])
    ('käthe', 2, array([ 1, -1]))
    """

    def __init__(self, kind: str, n: int, vectors: Mapping[str, Vector]) -> None:
        self.kind = kind
        self.n = n
        self._vectors = vectors

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"Ids({self.n} {'texts' if self.kind == 'text' else 'whole numbers'})"

    def __getitem__(self, where: Any) -> Any:
        if isinstance(where, slice):
            start, stop, step = where.indices(self.n)
            return self.read(start, stop)[::step] if step > 0 else np.asarray(self)[where]
        if isinstance(where, int | np.integer):
            place = int(where) + (self.n if where < 0 else 0)
            if not 0 <= place < self.n:
                raise IndexError(f"there is no id {where}; there are {self.n}")
            found = self.read(place, place + 1)[0]
            return found if self.kind == "text" else int(found)
        rows = np.arange(self.n)[np.asarray(where)] if np.asarray(where).dtype == bool else np.asarray(where)
        picked = [self[int(row)] for row in rows] if len(rows) < self.n // 100 else list(np.asarray(self)[rows])
        return np.array(picked, dtype=object if self.kind == "text" else np.int64)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self.n, PIECE):
            yield from self.read(start, min(start + PIECE, self.n)).tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.read(0, self.n).astype(dtype, copy=False) if dtype is not None else self.read(0, self.n)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Ids `start` to `stop`: an array of ``str`` objects, or of int64."""
        if self.kind == "number":
            return self._vectors["values"].read(start, stop)
        found: np.ndarray = np.array(self.to_arrow(start, stop).to_pylist(), dtype=object)
        return found

    def to_arrow(self, start: int = 0, stop: int | None = None) -> Any:
        """Ids `start` to `stop` as a pyarrow array, large_string or int64."""
        import pyarrow as pa

        stop = self.n if stop is None else stop
        if self.kind == "number":
            return pa.array(self._vectors["values"].read(start, stop))
        offsets, data = self._raw(start, stop)
        return text_array(offsets, data)

    def find(self, values: Any) -> np.ndarray:
        """Row of each of `values`, int64; −1 for one that is not among the ids. Holds all ids meanwhile."""
        import pyarrow as pa
        import pyarrow.compute as pc

        own = self.to_arrow()
        try:
            asked = pa.array(values if isinstance(values, pa.Array) else list(values), type=own.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            kind = "text" if self.kind == "text" else "whole numbers"
            raise InputError(f"cannot look up these ids ({error}); the ids of this graph are {kind}") from error
        return np.asarray(pc.fill_null(pc.index_in(asked, value_set=own), -1)).astype(np.int64)

    def _raw(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Offsets from 0, and bytes, of the ids `start` to `stop`, if they are what text looks like."""
        offsets = self._vectors["offsets"].read(start, stop + 1).astype(np.int64)
        if offsets[0] < 0 or (np.diff(offsets) < 0).any():
            raise StoreCorrupt("ids: offsets do not rise")
        data = self._vectors["bytes"].read(int(offsets[0]), int(offsets[-1]))
        if len(data) != offsets[-1] - offsets[0]:
            raise StoreCorrupt("ids: offsets reach beyond the bytes")
        return offsets - offsets[0], data

    def check(self) -> None:
        """Read all, piece by piece, and raise `StoreCorrupt` if it is not what was written."""
        for _ in self.pieces():
            pass

    def pieces(self) -> Iterator[dict[str, np.ndarray]]:
        """The arrays of the layout, piece by piece; offsets without the leading 0."""
        done = 0
        for start in range(0, self.n, PIECE):
            stop = min(start + PIECE, self.n)
            if self.kind == "number":
                yield {"values": self._vectors["values"].read(start, stop)}
                continue
            offsets, data = self._raw(start, stop)
            yield {"offsets": offsets[1:] + done, "bytes": data}
            done += len(data)


def text_array(offsets: np.ndarray, data: np.ndarray) -> Any:
    """A pyarrow large_string array on top of offsets (int64, from 0) and UTF-8 bytes, not copied."""
    import pyarrow as pa

    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def raw_text(array: Any) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (int64, from 0) and UTF-8 bytes of a pyarrow large_string array without nulls, not copied."""
    _, offsets, data = array.buffers()
    found = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    whole = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
    return found - found[0], whole[found[0] : found[-1]]


def make_ids(values: Any, *, origin: str = "ids", n: int | None = None) -> Ids:
    """Ids from a sequence, an array, or a column of a table; each must be there once.

    Parameters
    ----------
    values : sequence, ndarray, pandas.Series or pyarrow array
        Text, or whole numbers.
    origin : str
        What they are, for errors.
    n : int, optional
        How many there must be.
    """
    array = as_id_array(values, origin)
    if n is not None and len(array) != n:
        raise InputError(f"{origin}: there are {len(array)} ids for {n} rows; expected one for each row")
    encoded = array.dictionary_encode()
    if len(encoded.dictionary) < len(array):
        codes = np.asarray(encoded.indices)
        first = np.unique(codes, return_index=True)[1]
        twice = int(np.setdiff1d(np.arange(len(codes)), first)[0])
        where = int(np.argmax(codes == codes[twice]))
        raise InputError(
            f"{origin}: {array[twice].as_py()!r} is the id of rows {where} and {twice}; expected each id once"
        )
    return ids_of(array)


def ids_of_names(values: Any, origin: str) -> Ids | None:
    """Ids of names that a file or object has of its own; None if they are the numbers of the rows.

    Examples
    --------
    >>> ids_of_names([0, 1, 2], "a graph"), ids_of_names(["a", "b"], "a graph")
    (None, Ids(2 texts))
    """
    found = make_ids(values, origin=origin)
    numbers = range(len(found))
    plain = numbers if found.kind == "number" else map(str, numbers)
    return None if all(name == number for name, number in zip(found, plain, strict=True)) else found


def ids_of(array: Any) -> Ids:
    """Ids of a pyarrow array, large_string or int64, whose entries are known to differ."""
    import pyarrow as pa

    if pa.types.is_large_string(array.type):
        offsets, data = raw_text(array)
        return Ids("text", len(array), {"offsets": HeldVector(offsets), "bytes": HeldVector(data)})
    return Ids("number", len(array), {"values": HeldVector(np.asarray(array))})


def as_id_array(values: Any, origin: str) -> Any:
    """Ids as a pyarrow array, large_string or int64; what is neither text nor a whole number is refused."""
    import pyarrow as pa

    wanted = "expected text, or whole numbers below 2⁶³"
    if isinstance(values, Ids):
        return values.to_arrow()
    try:
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            values = np.asarray(values).tolist() if hasattr(values, "__array__") else list(values)
            values = pa.array(values)
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if values.null_count:
            row = int(np.argmax(np.asarray(values.is_null())))
            raise InputError(f"{origin}: the id of row {row} is empty; fill it, or drop the row")
        if pa.types.is_integer(values.type):
            return values.cast(pa.int64())
        if is_text(values.type):
            return to_large_text(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError) as error:
        raise InputError(f"{origin}: cannot be used as ids ({error}); {wanted}") from error
    raise InputError(f"{origin}: ids are of type {values.type}; {wanted}")


def same_ids(one: Ids, other: Ids | None) -> bool:
    """Tell whether two are the same ids in the same order."""
    if other is None or (one.kind, one.n) != (other.kind, other.n):
        return False
    pairs = zip(one.pieces(), other.pieces(), strict=True)
    return all(np.array_equal(a[name], b[name]) for a, b in pairs for name in a)


def write_ids(group: zarr.Group, ids: Ids) -> dict[str, Any]:
    """Write ids into a store, piece by piece, and return what its manifest says of them."""
    names: dict[str, Any] = (
        {"values": np.dtype("<i8")}
        if ids.kind == "number"
        else {"offsets": np.dtype("<i8"), "bytes": np.dtype("u1")}
    )
    folder = group.create_group("ids", overwrite=True)
    arrays: dict[str, Any] = {
        name: folder.create_array(
            name, shape=(0,), dtype=dtype, chunks=(storage.CHUNK,), compressors=storage.CODEC
        )
        for name, dtype in names.items()
    }
    waiting = {name: np.zeros(int(name == "offsets"), dtype) for name, dtype in names.items()}
    sums: dict[str, list[int]] = {name: [] for name in names}

    def write(name: str, values: np.ndarray) -> None:
        at = arrays[name].shape[0]
        arrays[name].resize((at + len(values),))
        arrays[name][at:] = values
        sums[name].append(storage.checksum(values))

    for piece in ids.pieces():
        for name, values in piece.items():
            waiting[name] = np.concatenate([waiting[name], values.astype(names[name], copy=False)])
            while len(waiting[name]) >= storage.CHUNK:
                write(name, waiting[name][: storage.CHUNK])
                waiting[name] = waiting[name][storage.CHUNK :]
    for name, values in waiting.items():
        if len(values):
            write(name, values)
    size = arrays["bytes"].shape[0] if "bytes" in arrays else 0
    return {"layout": LAYOUT, "kind": ids.kind, "n": ids.n, "bytes": size, "chunk_checksums": sums}


def read_ids(group: zarr.Group, record: Any, path: str, *, n: int) -> Ids:
    """The ids in a store, from what its manifest says of them; read and checked when used."""
    good = isinstance(record, dict) and record.get("kind") in KINDS and record.get("n") == n
    if not good or type(record.get("bytes")) is not int or not isinstance(record.get("chunk_checksums"), dict):
        raise StoreCorrupt(f"{path}: the manifest does not describe the ids of {n} rows")
    if record.get("layout") != LAYOUT:
        raise StoreCorrupt(
            f"{path}: its ids have layout {record.get('layout')}; expected {LAYOUT}: upgrade snmf-dist"
        )
    shapes = {"values": n} if record["kind"] == "number" else {"offsets": n + 1, "bytes": record["bytes"]}
    vectors = {}
    for name, size in shapes.items():
        dtype = np.uint8 if name == "bytes" else np.int64
        array = verified.find_array(group, f"ids/{name}", path, shape=(size,), dtypes=[dtype])
        sums = {f"ids/{name}": record["chunk_checksums"].get(name, [])}
        vectors[name] = verified.ChunkedVector(array, {"chunk_checksums": sums}, path, f"ids/{name}")
    return Ids(record["kind"], n, vectors)


__all__ = [
    "Ids",
    "as_id_array",
    "ids_of",
    "ids_of_names",
    "make_ids",
    "raw_text",
    "read_ids",
    "same_ids",
    "text_array",
    "write_ids",
]
