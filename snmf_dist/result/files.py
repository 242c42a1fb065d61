"""Results on disk.

Layout, format version 1 (one Zarr v3 group)::

    attributes["snmf_dist"]        written last
        kind "result", version 1, complete true
        status, settings, provenance
        checksums                  CRC-32 of labels and history; of each chunk of membership
        state                      names of the arrays of the solver's state, if it was saved
        fields                     the columns of history (see IterationRecord)
        ids                        the user's own ids of the rows, if there are any: see `snmf_dist.ids`
    membership   float (n, K)      L, in the input's own row order; one chunk is some rows whole
    labels       int32 (n,)        argmax of each row, -1 for a row of zeros
    spectral_labels  int32 (n,)    of plain spectral clustering, if the run began there
    sample_rows  int64 (s,)        some rows, and where they lie in a plane of the leading eigenvectors, if the run
    sample_places  float32 (s, 2)  began with those
    state-X ...  float (n, K)      the solver's state, in the graph store's row order, if it was saved
    history      float64 (iterations, fields)
                                   attributes["fields"] names the columns too; in results of 0.1 nothing else does

Whatever is read is compared with the attribute block first, and with its checksum after.
"""

import dataclasses
import os
import shutil
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import zarr

from snmf_dist import storage, verified
from snmf_dist.engine.client import write_rows
from snmf_dist.engine.tasks import array_from_reader
from snmf_dist.errors import NoRoom, StoreCorrupt
from snmf_dist.ids import Ids, read_ids, write_ids
from snmf_dist.result.records import IterationRecord, Sample, Status
from snmf_dist.solve.kernels import row_labels

RESULT = "result"
HISTORY_FIELDS = tuple(field.name for field in dataclasses.fields(IterationRecord))
FLOATS = (np.float32, np.float64)
RESULT_REMEDY = (
    "fit again with overwrite=True (in a study: remove it and give the command again), or restore it from a copy"
)
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
    ids: Ids | None = None
    sample: Sample | None = None


def check_room(path: str, n: int, K: int, dtype: Any, *, state: int = 0) -> None:
    """Refuse a run whose result, with so many arrays of state, may not fit on the disk of `path`."""
    if storage.is_url(path):
        return
    folder = os.path.dirname(path)
    size, free = n * (K * np.dtype(dtype).itemsize * (1 + state) + 8), shutil.disk_usage(folder).free
    if size > free:
        raise NoRoom(
            f"{folder}: the result takes up to {size:,} bytes, but {free:,} are free; free some room, or choose "
            "another place for it"
        )


def write_result(
    path: str, parts: ResultParts, *, overwrite: bool = False, options: storage.Options = None
) -> None:
    """Write a result; row blocks of the membership are written where they are."""
    n, K = parts.membership.shape
    rows = max(1, min(CHUNK_ENTRIES // K, n))
    with storage.replacing(path, RESULT, overwrite=overwrite, options=options) as place:
        group = storage.create_group(place, RESULT, options=options)
        state = {} if parts.state is None else {f"state-{k}": v for k, v in parts.state._asdict().items()}
        checksums: dict[str, Any] = {}
        for name, array in {"membership": parts.membership, **state}.items():
            group.create_array(name, shape=(n, K), dtype=array.dtype, chunks=(rows, K))
            checksums[name] = write_rows(array, BlockWriter(place, options, name), block_rows=rows)
        table = np.array([dataclasses.astuple(record) for record in parts.history])
        history = group.create_array("history", data=table)
        history.attrs["fields"] = list(HISTORY_FIELDS)
        checksums["history"] = storage.checksum(table)
        checksums["labels"] = storage.write_vector(group, "labels", parts.labels)
        if parts.spectral_labels is not None:
            checksums["spectral_labels"] = storage.write_vector(group, "spectral_labels", parts.spectral_labels)
        if parts.sample is not None:
            checksums["sample_rows"] = storage.write_vector(group, "sample_rows", parts.sample.rows)
            group.create_array("sample_places", data=parts.sample.places)
            checksums["sample_places"] = storage.checksum(parts.sample.places)
        storage.finish_group(
            group,
            RESULT,
            {
                "status": parts.status.name,
                "settings": dict(parts.settings),
                "provenance": dict(parts.provenance),
                "fields": list(HISTORY_FIELDS),
                "state": [] if parts.state is None else list(parts.state._fields),
                "checksums": checksums,
                **({} if parts.ids is None else {"ids": write_ids(group, parts.ids)}),
            },
        )


def read_result(path: str, *, options: storage.Options = None) -> ResultParts:
    """Open a result; its membership is read when used."""
    group = storage.open_group(path, options)
    block = storage.read_block(group, path, RESULT)
    wrong = list(_problems(block))
    if wrong:
        raise StoreCorrupt(f"{path}: its attributes are wrong: {'; '.join(wrong)}; {RESULT_REMEDY}")
    with _explaining(path, options, block):
        membership = verified.find_array(group, "membership", path, shape=(None, None), dtypes=FLOATS)
        n, K = membership.shape
        names = ("labels", "spectral_labels") if "spectral_labels" in block["checksums"] else ("labels",)
        labels = [_labels(group, block, name, path, n=n, K=K) for name in names]
        state = {
            name: _stored_rows(group, path, options, f"state-{name}", block, (n, K)) for name in block["state"]
        }
        return ResultParts(
            membership=_stored_rows(group, path, options, "membership", block, (n, K)),
            labels=labels[0],
            history=_history(group, block, path),
            status=Status[block["status"]],
            settings=block["settings"],
            provenance=block["provenance"],
            spectral_labels=labels[1] if len(labels) > 1 else None,
            state=namedtuple("State", block["state"])(**state) if state else None,
            ids=read_ids(group, block["ids"], path, n=n) if "ids" in block else None,
            sample=_sample(group, block, path, n=n) if "sample_rows" in block["checksums"] else None,
        )


def check_membership(rows: Sequence[Any], labels: np.ndarray, *, specks_are_joined: bool) -> None:
    """Read L, and the state if it is there, block by block; refuse an L that does not give the labels.

    Rows of specks that were joined to a large part have a label and no membership.
    """
    found = [
        part.map_blocks(row_labels, chunks=(part.chunks[0], (1,)), dtype=np.int32).compute().ravel()
        for part in rows
    ]
    joined = (found[0] < 0) & specks_are_joined
    if not np.array_equal(np.where(joined, labels, found[0]), labels):
        raise StoreCorrupt("the labels are not those of the membership; fit again with overwrite=True")


def _problems(block: Mapping[str, Any]) -> Iterator[str]:
    """Say what is wrong with the attribute block of a result, in words."""
    for name, kind in {"settings": dict, "provenance": dict, "checksums": dict, "state": list}.items():
        if type(block.get(name)) is not kind:
            yield f"{name} is {str(block.get(name))[:40]}; expected a {kind.__name__}"
            return
    if block.get("status") not in Status.__members__:
        yield f"status is {block.get('status')}"
    state, checksums = block["state"], block["checksums"]
    if not all(isinstance(name, str) and name.isalpha() for name in state) or len(set(state)) < len(state):
        yield "state is not a list of names"
    elif not all(isinstance(checksums.get(name), list) for name in ("membership", *(f"state-{x}" for x in state))):
        yield "checksums has not one for each chunk of membership and state"
    if not all(type(checksums.get(name)) is int for name in ("labels", "history")):
        yield "checksums has not one for each of labels and history"
    if not set(block.get("fields", HISTORY_FIELDS)) <= set(HISTORY_FIELDS):
        yield f"fields is {block['fields']}"


def _explaining(path: str, options: storage.Options, block: Mapping[str, Any]) -> Any:
    return verified.explaining(path, RESULT, block["checksum"], options, remedy=RESULT_REMEDY)


def _labels(group: zarr.Group, block: Mapping[str, Any], name: str, path: str, *, n: int, K: int) -> np.ndarray:
    array = verified.find_array(group, name, path, shape=(n,), dtypes=[np.int32])
    labels = verified.read_whole(array, block["checksums"][name], path, name)
    if labels.min(initial=0) < -1 or labels.max(initial=0) >= K:
        raise StoreCorrupt(f"{path}: {name} has numbers outside -1:{K}")
    return labels


def _sample(group: zarr.Group, block: Mapping[str, Any], path: str, *, n: int) -> Sample:
    rows = verified.find_array(group, "sample_rows", path, shape=(None,), dtypes=[np.int64])
    size = rows.shape[0]
    places = verified.find_array(group, "sample_places", path, shape=(size, 2), dtypes=[np.float32])
    found = Sample(
        *(
            verified.read_whole(array, block["checksums"].get(name), path, name)
            for name, array in (("sample_rows", rows), ("sample_places", places))
        )
    )
    if size and (found.rows.min() < 0 or found.rows.max() >= n):
        raise StoreCorrupt(f"{path}: sample_rows has numbers outside 0:{n}")
    return found


def _history(group: zarr.Group, block: Mapping[str, Any], path: str) -> list[IterationRecord]:
    array = verified.find_array(group, "history", path, shape=(None, None), dtypes=[np.float64])
    fields: Any = block.get("fields") or array.attrs.get("fields")
    if not isinstance(fields, list) or array.shape[0] < 1 or array.shape[1] != len(fields):
        raise StoreCorrupt(f"{path}: history has shape {array.shape}, and names the columns {fields}")
    table = verified.read_whole(array, block["checksums"]["history"], path, "history")
    try:
        return [_record(row, fields) for row in table]
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreCorrupt(f"{path}: history cannot be read ({error})") from error


def _stored_rows(
    group: zarr.Group,
    path: str,
    options: storage.Options,
    name: str,
    block: Mapping[str, Any],
    shape: tuple[int, int],
) -> Any:
    """An array of the store as rows, read and checked chunk by chunk when used."""
    array = verified.find_array(group, name, path, shape=shape, dtypes=FLOATS)
    rows, checksums = array.chunks[0], block["checksums"][name]
    if len(checksums) != -(-shape[0] // rows):
        raise StoreCorrupt(f"{path}: {name} is cut into chunks of {rows} rows, but has {len(checksums)} checksums")
    reader = _ChunkReader(path, options, name, block["checksum"], shape, rows)
    return array_from_reader(reader, [*range(0, shape[0], rows), shape[0]], shape[1], dtype=array.dtype)


@dataclass(frozen=True)
class BlockWriter:
    """Writes one row block of an array of a store, and returns its checksum."""

    path: str
    options: storage.Options
    name: str

    def __call__(self, start: int, rows: np.ndarray) -> int:
        """Write it."""
        array: Any = storage.open_group(self.path, self.options, mode="r+")[self.name]
        array[start : start + len(rows)] = rows
        return storage.checksum(rows)


@dataclass(frozen=True)
class _ChunkReader:
    path: str
    options: storage.Options
    name: str
    checksum: int
    shape: tuple[int, int]
    chunk_rows: int

    def __call__(self, start: int, stop: int) -> np.ndarray:
        group = storage.open_group(self.path, self.options)
        block = storage.read_block(group, self.path, RESULT)
        if block["checksum"] != self.checksum:
            raise StoreCorrupt(f"{self.path}: the result was replaced since it was opened; open it again")
        with _explaining(self.path, self.options, block):
            array = verified.find_array(group, self.name, self.path, shape=self.shape, dtypes=FLOATS)
            rows = verified.read_range(array, start, stop, self.path, self.name)
            if storage.checksum(rows) != block["checksums"][self.name][start // self.chunk_rows]:
                raise StoreCorrupt(f"{self.path}: rows {start}:{stop} of {self.name} is not what was written")
        return rows


def _record(row: np.ndarray, fields: list[str]) -> IterationRecord:
    numbers = {
        name: int(value) if name in ("iteration", "products") else float(value)
        for name, value in zip(fields, row, strict=True)
    }
    return IterationRecord(**numbers)  # type: ignore[arg-type]
