"""Results on disk.

Layout, format version 1 (one Zarr v3 group)::

    attributes["snmf_dist"]        written last
        kind "result", version 1, complete true
        status, settings, provenance
        checksums                  CRC-32 of labels and history; of each chunk of membership
        state                      names of the arrays of the solver's state, if it was saved
    membership   float (n, K)      L, in the input's own row order; one chunk is some rows whole
    labels       int32 (n,)        argmax of each row, -1 for a row of zeros
    spectral_labels  int32 (n,)    of plain spectral clustering, if the run began there
    state-X ...  float (n, K)      the solver's state, in the graph store's row order, if it was saved
    history      float64 (iterations, fields)
                                   attributes["fields"] names the columns (see IterationRecord)
"""

import dataclasses
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import zarr

from snmf_dist import storage
from snmf_dist.engine.tasks import array_from_reader, write_rows
from snmf_dist.errors import StoreCorrupt
from snmf_dist.result.records import IterationRecord, Status

KIND = "result"
FIELDS = tuple(field.name for field in dataclasses.fields(IterationRecord))
CHUNK_ENTRIES = 1 << 20  # of membership: 4 or 8 MB


class ResultParts(NamedTuple):
    """What a result store holds."""

    membership: Any
    labels: np.ndarray
    history: list[IterationRecord]
    status: Status
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    spectral_labels: np.ndarray | None = None
    state: Any = None


def write_result(
    path: str, parts: ResultParts, *, overwrite: bool = False, options: storage.Options = None
) -> None:
    """Write a result; row blocks of the membership are written where they are."""
    n, K = parts.membership.shape
    rows = max(1, min(CHUNK_ENTRIES // K, n))
    with storage.replacing(path, KIND, overwrite=overwrite, options=options) as place:
        group = storage.create_group(place, KIND, options=options)
        state = {} if parts.state is None else {f"state-{k}": v for k, v in parts.state._asdict().items()}
        checksums: dict[str, Any] = {}
        for name, array in {"membership": parts.membership, **state}.items():
            group.create_array(name, shape=(n, K), dtype=array.dtype, chunks=(rows, K))
            checksums[name] = write_rows(array, _ChunkWriter(place, options, name), block_rows=rows)
        table = np.array([dataclasses.astuple(record) for record in parts.history])
        history = group.create_array("history", data=table)
        history.attrs["fields"] = list(FIELDS)
        checksums["history"] = storage.checksum(table)
        checksums["labels"] = storage.write_vector(group, "labels", parts.labels)
        if parts.spectral_labels is not None:
            checksums["spectral_labels"] = storage.write_vector(group, "spectral_labels", parts.spectral_labels)
        storage.finish_group(
            group,
            KIND,
            {
                "status": parts.status.name,
                "settings": dict(parts.settings),
                "provenance": dict(parts.provenance),
                "state": [] if parts.state is None else list(parts.state._fields),
                "checksums": checksums,
            },
        )


def read_result(path: str, *, options: storage.Options = None) -> ResultParts:
    """Open a result; its membership is read when used."""
    group = storage.open_group(path, options)
    block = storage.read_block(group, path, KIND)
    labels, table = (_checked(group, block, name, path) for name in ("labels", "history"))
    fields_of_history: Any = group["history"].attrs["fields"]
    spectral = None
    if "spectral_labels" in block["checksums"]:
        spectral = _checked(group, block, "spectral_labels", path)
    fields = block.get("state", [])
    state = {name: _stored_rows(group, path, options, f"state-{name}", len(labels)) for name in fields}
    return ResultParts(
        membership=_stored_rows(group, path, options, "membership", len(labels)),
        labels=labels,
        history=[_record(row, fields_of_history) for row in table],
        status=Status[block["status"]],
        settings=block["settings"],
        provenance=block["provenance"],
        spectral_labels=spectral,
        state=namedtuple("State", fields)(**state) if fields else None,
    )


def _stored_rows(group: zarr.Group, path: str, options: storage.Options, name: str, n: int) -> Any:
    """An array of the store as rows, read and checked chunk by chunk when used."""
    array = group.get(name)
    if not isinstance(array, zarr.Array) or array.shape[0] != n:
        raise StoreCorrupt(f"{path}: {name} is missing or of the wrong shape; fit again")
    reader = _ChunkReader(path, options, name, storage.read_block(group, path, KIND)["checksum"])
    bounds = [*range(0, n, array.chunks[0]), n]
    return array_from_reader(reader, bounds, array.shape[1], dtype=array.dtype)


@dataclass(frozen=True)
class _ChunkWriter:
    path: str
    options: storage.Options
    name: str

    def __call__(self, start: int, rows: np.ndarray) -> int:
        array: Any = storage.open_group(self.path, self.options, mode="r+")[self.name]
        array[start : start + len(rows)] = rows
        return storage.checksum(rows)


@dataclass(frozen=True)
class _ChunkReader:
    path: str
    options: storage.Options
    name: str
    checksum: int

    def __call__(self, start: int, stop: int) -> np.ndarray:
        group = storage.open_group(self.path, self.options)
        block = storage.read_block(group, self.path, KIND)
        if block["checksum"] != self.checksum:
            raise StoreCorrupt(f"{self.path}: the result was replaced since it was opened; open it again")
        array: Any = group[self.name]
        crc = block["checksums"][self.name][start // array.chunks[0]]
        try:
            rows = np.asarray(array[start:stop])
        except Exception as error:  # codecs raise what they like
            raise _corrupt(self.path, f"rows {start}:{stop} of {self.name}") from error
        if storage.checksum(rows) != crc:
            raise _corrupt(self.path, f"rows {start}:{stop} of {self.name}")
        return rows


def _checked(group: zarr.Group, block: dict[str, Any], name: str, path: str) -> np.ndarray:
    values = storage.read_array(group, name, path)
    if storage.checksum(values) != block["checksums"][name]:
        raise _corrupt(path, name)
    return values


def _corrupt(path: str, what: str) -> StoreCorrupt:
    return StoreCorrupt(f"{path}: {what} is not what was written; fit again, or restore the result from a copy")


def _record(row: np.ndarray, fields: list[str]) -> IterationRecord:
    numbers = {
        name: int(value) if name in ("iteration", "products") else float(value)
        for name, value in zip(fields, row, strict=True)
    }
    return IterationRecord(**numbers)  # type: ignore[arg-type]
