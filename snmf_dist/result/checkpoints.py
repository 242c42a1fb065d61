"""Checkpoints on disk: all that a run needs to continue, written while it goes on.

They lie beside the result, in the folder ``<out>.checkpoint``, and go when the result is whole. Two generations
take turns, so that one is whole while the other is written. Layout of one, format version 1 (a Zarr v3 group)::

    attributes["snmf_dist"]     written last, when all arrays are on the disk
        kind "checkpoint", version 1, complete true
        number                  1, 2, 3, …: the larger of two whole generations is the newer
        fingerprint             of the graph
        settings                of the fit
        bounds                  where the row blocks begin and end
        facts, start            how far the run is, and what its start found, as JSON text
        checksums               CRC-32 of each chunk of each array
        types                   of each array; checkpoints of snmf_dist 0.1.0 may lack them
    state-X …, labels, peak-0 …, spectral   the rows, in the graph store's order
"""

import logging
import os
import shutil
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import fsspec
import numpy as np
import zarr

from snmf_dist import storage, verified
from snmf_dist.engine.tasks import array_from_reader
from snmf_dist.errors import (
    InputError,
    NotOurStore,
    ResultWarning,
    RowsLost,
    SnmfError,
    StoreCorrupt,
    StoreIncomplete,
    StoreVersionError,
)
from snmf_dist.result.files import BlockWriter

logger = logging.getLogger(__name__)

CHECKPOINT = "checkpoint"
SUFFIX = ".checkpoint"
GENERATIONS = ("a", "b")
MAY_CHANGE = ("max_iter", "tol")  # settings that do not change what an iteration does


class Checkpoint(NamedTuple):
    """What a checkpoint holds; `arrays` are Dask arrays, read and checked when they are used."""

    number: int
    settings: dict[str, Any]
    bounds: np.ndarray
    facts: str
    start: str
    arrays: dict[str, Any]


@dataclass(frozen=True)
class CheckpointFolder:
    """The checkpoints of one output.

    Attributes
    ----------
    path : str
        The folder.
    fingerprint : str
        The fingerprint of the graph that the run is on.
    settings : mapping
        The settings of the run.
    options : mapping, optional
        Passed to fsspec for URLs.
    """

    path: str
    fingerprint: str
    settings: Mapping[str, Any]
    options: storage.Options = None

    def latest(self, without: Collection[int] = ()) -> Checkpoint | None:
        """The newest whole checkpoint, or None.

        Parameters
        ----------
        without : collection of int
            The numbers of checkpoints that are known to be damaged.

        Raises
        ------
        InputError
            It is of another graph, or of a run with other settings.
        """
        found, damage = [], []
        for name in filter(self._has, GENERATIONS):
            try:
                found.append(self._read(name))
            except StoreIncomplete:  # the run ended while it was written
                continue
            except (StoreCorrupt, NotOurStore, StoreVersionError) as error:
                damage.append(error)
        if damage and not found:
            text = f"{self.path}: no checkpoint can be read ({damage[0]}); the run starts over"
            warnings.warn(text, ResultWarning, stacklevel=2)
        found = [one for one in found if one[1]["number"] not in without]
        if not found:
            return None
        newest, *older = sorted(found, key=lambda one: one[1]["number"], reverse=True)
        self._compare(newest[1])
        try:
            return self._opened(*newest)
        except StoreCorrupt as error:
            if not older:
                raise
            logger.warning("the newest checkpoint is damaged (%s); the one before it is used", error)
            self._compare(older[0][1])
            return self._opened(*older[0])

    def begin(self, number: int) -> str:
        """Start generation `number`, over the older of the two; the place to write to."""
        place = self._place(GENERATIONS[number % 2])
        if not storage.is_url(place) and not os.path.isdir(self.path):
            os.makedirs(self.path)
            storage.flush(self.path)
        storage.create_group(place, CHECKPOINT, options=self.options)
        return place

    def writer(self, place: str, name: str, shape: tuple[int, int], dtype: Any, rows: int) -> BlockWriter:
        """Make an array of a generation, and give what writes its blocks of so many rows."""
        group = storage.open_group(place, self.options, mode="r+")
        group.create_array(
            name, shape=shape, dtype=dtype, chunks=(min(rows, shape[0]), shape[1]), compressors=None
        )
        return BlockWriter(place, self.options, name)

    def commit(self, place: str, block: Mapping[str, Any]) -> None:
        """Make a generation whole: its arrays reach the disk first, then what says so."""
        storage.flush(place)
        group = storage.open_group(place, self.options, mode="r+")
        whole = {"fingerprint": self.fingerprint, "settings": dict(self.settings), **block}
        storage.finish_group(group, CHECKPOINT, whole)
        storage.flush(place)

    def remove(self) -> None:
        """Remove all checkpoints."""
        if not storage.is_url(self.path):
            shutil.rmtree(self.path, ignore_errors=True)
            return
        files, place = fsspec.core.url_to_fs(self.path, **(storage.plain(self.options) or {}))
        if files.exists(place):
            files.rm(place, recursive=True)

    def is_there(self) -> bool:
        """Whether the folder holds a generation, whole or not."""
        return any(map(self._has, GENERATIONS))

    def validate(self) -> None:
        """Read all of every generation that is there, and compare it with its checksums.

        Raises
        ------
        StoreCorrupt
            A generation is damaged.
        StoreIncomplete
            A generation is not whole.
        NotOurStore
            The folder holds something else.
        """
        for name in GENERATIONS:
            place = self._place(name)
            if not storage.exists(place, self.options):
                continue
            group = storage.open_group(place, self.options)
            block = storage.read_block(group, place, CHECKPOINT)
            for array in self._opened(group, block, name).arrays.values():
                for rows in array.blocks.ravel():
                    rows.compute(scheduler="sync")

    def _opened(self, group: zarr.Group, block: Mapping[str, Any], name: str) -> Checkpoint:
        bounds = np.array(block["bounds"], dtype=np.int64)
        place = self._place(name)
        arrays = {array: self._rows(group, place, block, array) for array in block["checksums"]}
        return Checkpoint(block["number"], block["settings"], bounds, block["facts"], block["start"], arrays)

    def _has(self, name: str) -> bool:
        return storage.exists(self._place(name), self.options)

    def _place(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    def _read(self, name: str) -> tuple[zarr.Group, dict[str, Any], str]:
        """A generation, and what it says of itself."""
        place = self._place(name)
        group = storage.open_group(place, self.options)
        return group, storage.read_block(group, place, CHECKPOINT), name

    def _compare(self, block: Mapping[str, Any]) -> None:
        again = "pass resume=False (--no-resume) to start over, or another out"
        if block["fingerprint"] != self.fingerprint:
            raise InputError(f"{self.path}: holds an unfinished run on another graph; {again}")
        for name, value in self.settings.items():
            before = block["settings"].get(name)
            if name not in MAY_CHANGE and before != value:
                raise InputError(
                    f"{self.path}: holds an unfinished run with {name}={before!r}, now it is {value!r}; {again}"
                )

    def _rows(self, group: zarr.Group, place: str, block: Mapping[str, Any], name: str) -> Any:
        crcs, n = block["checksums"][name], int(block["bounds"][-1])
        types = [block["types"][name]] if "types" in block else ["f4", "f8", "i4", "i8"]
        try:
            array = verified.find_array(group, name, place, shape=(n, None), dtypes=types)
        except StoreCorrupt as error:
            raise StoreCorrupt(f"{error}; pass resume=False to start over") from error
        if len(crcs) != -(-n // array.chunks[0]) or array.chunks[1] != array.shape[1]:
            raise StoreCorrupt(f"{place}: {name} is not cut as it was written; pass resume=False to start over")
        bounds = [*range(0, array.shape[0], array.chunks[0]), array.shape[0]]
        reader = BlockReader(place, self.options, name, tuple(crcs), array.chunks[0], block["number"])
        return array_from_reader(reader, bounds, array.shape[1], dtype=array.dtype)


@dataclass(frozen=True)
class BlockReader:
    """Reads one row block of an array, and compares its checksum."""

    path: str
    options: storage.Options
    name: str
    checksums: tuple[int, ...]
    chunk: int
    number: int

    def __call__(self, start: int, stop: int) -> np.ndarray:
        """Read it."""
        try:
            array: Any = storage.open_group(self.path, self.options)[self.name]
            rows = np.asarray(array[start:stop])
        except Exception as error:  # codecs raise what they like
            raise self._wrong(start, stop) from error
        if storage.checksum(rows) != self.checksums[start // self.chunk]:
            raise self._wrong(start, stop)
        return rows

    def _wrong(self, start: int, stop: int) -> SnmfError:
        """The error for rows that are not there: a newer checkpoint took their place, or the file is damaged."""
        try:
            block = storage.open_group(self.path, self.options).attrs.get(storage.BLOCK)
        except SnmfError:
            block = None
        if isinstance(block, dict) and block.get("number") != self.number:
            return RowsLost(f"{self.path}: a newer checkpoint took the place of the one that is needed")
        return StoreCorrupt(
            f"{self.path}: rows {start}:{stop} of {self.name} are not what was written; pass resume=False to "
            "start over"
        )
