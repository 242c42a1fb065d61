"""Results on disk.

Layout, format version 1 (one Zarr v3 group)::

    attributes["snmf_dist"]        written last
        kind "result", version 1, complete true
        status, settings, provenance
        checksums                  CRC-32 of labels and history; of each chunk of membership
    membership   float (n, K)      L, in the input's own row order; one chunk is some rows whole
    labels       int32 (n,)        argmax of each row, -1 for a row of zeros
    history      float64 (iterations, fields)
                                   attributes["fields"] names the columns (see IterationRecord)
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import zarr

from snmf_dist import storage
from snmf_dist.errors import StoreCorrupt
from snmf_dist.result.records import IterationRecord, Status
from snmf_dist.rows import Rows, export_rows, load_rows

KIND = "result"
FIELDS = tuple(field.name for field in dataclasses.fields(IterationRecord))
CHUNK_ENTRIES = 1 << 20  # of membership: 4 or 8 MB


class ResultParts(NamedTuple):
    """What a result store holds."""

    membership: Rows
    labels: np.ndarray
    history: list[IterationRecord]
    status: Status
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]


def write_result(
    path: str, parts: ResultParts, *, overwrite: bool = False, options: storage.Options = None
) -> None:
    """Write a result; row blocks of the membership are written where they are."""
    n, K = parts.membership.shape
    rows = max(1, min(CHUNK_ENTRIES // K, n))
    with storage.replacing(path, KIND, overwrite=overwrite, options=options) as place:
        group = storage.create_group(place, KIND, options=options)
        group.create_array("membership", shape=(n, K), dtype=parts.membership.dtype, chunks=(rows, K))
        chunks = export_rows(parts.membership, _ChunkWriter(place, options), block_rows=rows)
        table = np.array([dataclasses.astuple(record) for record in parts.history])
        history = group.create_array("history", data=table)
        history.attrs["fields"] = list(FIELDS)
        storage.finish_group(
            group,
            KIND,
            {
                "status": parts.status.name,
                "settings": dict(parts.settings),
                "provenance": dict(parts.provenance),
                "checksums": {
                    "labels": storage.write_vector(group, "labels", parts.labels),
                    "history": storage.checksum(table),
                    "membership": chunks,
                },
            },
        )


def read_result(path: str, *, options: storage.Options = None) -> ResultParts:
    """Open a result; its membership is read when used."""
    group = storage.open_group(path, options)
    block = storage.read_block(group, path, KIND)
    labels, table = (_checked(group, block, name, path) for name in ("labels", "history"))
    membership = group.get("membership")
    if not isinstance(membership, zarr.Array) or membership.shape[0] != len(labels):
        raise StoreCorrupt(f"{path}: membership is missing or of the wrong shape; fit again")
    (n, K), rows = membership.shape, membership.chunks[0]
    return ResultParts(
        membership=load_rows(
            _ChunkReader(path, options, block["checksum"]),
            [*range(0, n, rows), n],
            K,
            meta=np.empty((0, 0), dtype=membership.dtype),
        ),
        labels=labels,
        history=[_record(row) for row in table],
        status=Status[block["status"]],
        settings=block["settings"],
        provenance=block["provenance"],
    )


@dataclass(frozen=True)
class _ChunkWriter:
    path: str
    options: storage.Options

    def __call__(self, start: int, rows: np.ndarray) -> int:
        group = storage.open_group(self.path, self.options, mode="r+")
        membership: Any = group["membership"]
        membership[start : start + len(rows)] = rows
        return storage.checksum(rows)


@dataclass(frozen=True)
class _ChunkReader:
    path: str
    options: storage.Options
    checksum: int

    def __call__(self, start: int, stop: int) -> np.ndarray:
        group = storage.open_group(self.path, self.options)
        block = storage.read_block(group, self.path, KIND)
        if block["checksum"] != self.checksum:
            raise StoreCorrupt(f"{self.path}: the result was replaced since it was opened; open it again")
        membership: Any = group["membership"]
        crc = block["checksums"]["membership"][start // membership.chunks[0]]
        try:
            rows = np.asarray(membership[start:stop])
        except Exception as error:  # codecs raise what they like
            raise _corrupt(self.path, f"rows {start}:{stop} of membership") from error
        if storage.checksum(rows) != crc:
            raise _corrupt(self.path, f"rows {start}:{stop} of membership")
        return rows


def _checked(group: zarr.Group, block: dict[str, Any], name: str, path: str) -> np.ndarray:
    values = storage.read_array(group, name, path)
    if storage.checksum(values) != block["checksums"][name]:
        raise _corrupt(path, name)
    return values


def _corrupt(path: str, what: str) -> StoreCorrupt:
    return StoreCorrupt(f"{path}: {what} is not what was written; fit again, or restore the result from a copy")


def _record(row: np.ndarray) -> IterationRecord:
    numbers = {
        name: int(value) if name in ("iteration", "products") else float(value)
        for name, value in zip(FIELDS, row, strict=True)
    }
    return IterationRecord(**numbers)  # type: ignore[arg-type]
