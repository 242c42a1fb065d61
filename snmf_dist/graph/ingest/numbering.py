"""Nodes with ids of any kind, numbered by a dictionary that need not fit into memory.

Each batch of edges is a run: its distinct ids are written to a file once, and its edges as places among them. The
ids are then cut into ranges that fit into memory; each range is sorted, and an id's number is its place in the
sorted list of all. So the numbers depend on the ids alone: not on the order of edges, nor on the memory.
"""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from snmf_dist.errors import DoesNotFit, InputError, WorkLost
from snmf_dist.graph.ingest.edges import Edges
from snmf_dist.ids import HeldVector, Ids, as_id_array, raw_text, text_array

SAMPLED = 64  # ids of each run that the cuts between ranges are chosen from
TEXT_COST, NUMBER_COST = (4, 80), (0, 64)  # bytes of memory for a byte, and for an id, while a range is numbered
MOST_PARTS = 4096


class _Run(NamedTuple):
    """Edges, distinct ids and their bytes in a run, and whether weights differ from 1."""

    edges: int
    ids: int
    size: int
    weighted: bool


class Renumbering:
    """Collects edges between ids, then numbers the ids from 0 in sorted order.

    Parameters
    ----------
    folder : str
        An existing folder for files: about the bytes of the ids, each counted once a batch, and 16 bytes an edge.
    text : bool
        Whether ids are text, or whole numbers.
    memory : int
        Bytes that may be used.
    """

    def __init__(self, folder: str, *, text: bool, memory: int) -> None:
        self.folder, self.text, self.memory = folder, text, memory
        self.runs: list[_Run] = []
        self.parts = 1
        self._sample: list[Any] = []

    def add(self, rows: Any, columns: Any, weights: np.ndarray, origin: str) -> None:
        """Add a batch of edges between ids, given as pyarrow arrays."""
        import pyarrow as pa

        both = pa.concat_arrays([as_id_array(rows, origin), as_id_array(columns, origin)])
        if pa.types.is_large_string(both.type) != self.text:
            raise InputError(
                f"{origin}: ids are partly text and partly whole numbers; pass ids='text' (--ids text)"
            )
        if not len(both):
            return
        encoded = both.dictionary_encode()
        names, weighted = encoded.dictionary, bool((weights != 1).any())
        self._append("places", np.asarray(encoded.indices).astype(np.int32, copy=False))
        if weighted:
            self._append("weights", weights.astype(np.float64, copy=False))
        size = self._append_names("names", names)
        self._sample.append(names.take(pa.array(np.unique(np.linspace(0, len(names) - 1, SAMPLED).astype(int)))))
        self.runs.append(_Run(len(weights), len(names), size, weighted))

    @property
    def n_edges(self) -> int:
        """Number of edges added."""
        return sum(run.edges for run in self.runs)

    def finish(self) -> Ids:
        """Number the ids, and return them in that order, as files in the folder."""
        a_byte, an_id = TEXT_COST if self.text else NUMBER_COST
        cost = sum(a_byte * run.size + an_id * run.ids for run in self.runs)
        self.parts = max(-(-cost // max(self.memory // 2, 1)), 1)
        if self.parts > MOST_PARTS:
            raise DoesNotFit(
                f"ids: numbering them takes {cost / 1e9:.1f} GB in {self.parts} parts of "
                f"{self.memory / 2e9:.3f} GB; raise memory_limit"
            )
        if self.parts > 1:
            self._cut()
        count = 0
        for part in range(self.parts):
            count += self._number(part, count)
        if not self.text:
            return Ids("number", count, {"values": HeldVector(self._map("sorted", np.int64))})
        lengths = self._map("sorted-lengths", np.int32)
        offsets = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return Ids(
            "text", count, {"offsets": HeldVector(offsets), "bytes": HeldVector(self._map("sorted", np.uint8))}
        )

    def batches(self) -> Iterator[Edges]:
        """The edges again, between numbers."""
        at = np.zeros(self.parts, dtype=np.int64)
        place, weight, seen = 0, 0, 0
        for run in self.runs:
            part_of = self._read("part-of", np.uint16, seen, run.ids) if self.parts > 1 else None
            numbers = np.empty(run.ids, dtype=np.int64)
            for part in range(self.parts) if part_of is None else map(int, np.unique(part_of)):
                mine: Any = slice(None) if part_of is None else part_of == part
                size = run.ids if part_of is None else int(np.count_nonzero(mine))
                numbers[mine] = self._read(f"numbers-{part}", np.int64, int(at[part]), size)
                at[part] += size
            ends = numbers[self._read("places", np.int32, place, 2 * run.edges)]
            weights = self._read("weights", np.float64, weight, run.edges) if run.weighted else np.ones(run.edges)
            place, weight, seen = place + 2 * run.edges, weight + run.edges * run.weighted, seen + run.ids
            yield Edges(ends[: run.edges], ends[run.edges :], weights)

    def _cut(self) -> None:
        """Cut the ids of every run into ranges, each a file."""
        import pyarrow as pa
        import pyarrow.compute as pc

        sample = pa.concat_arrays(self._sample)
        sample = sample.take(pc.sort_indices(sample))
        picks = np.linspace(0, len(sample) - 1, self.parts + 1).astype(int)[1:-1]
        cuts = [sample[int(pick)] for pick in picks]
        seen = start = 0
        for run in self.runs:
            names = self._names("names", seen, run.ids, start, run.size)
            part_of = np.zeros(run.ids, dtype=np.uint16)
            for cut in cuts:
                part_of += np.asarray(pc.greater_equal(names, cut))
            self._append("part-of", part_of)
            for part in map(int, np.unique(part_of)):
                self._append_names(f"part-{part}", names.filter(pa.array(part_of == part)))
            seen, start = seen + run.ids, start + run.size
        self._remove("names")
        self._remove("names-lengths")

    def _number(self, part: int, first: int) -> int:
        """Sort the ids of a range and number them from `first`; return how many differ."""
        import pyarrow.compute as pc

        name = f"part-{part}" if self.parts > 1 else "names"
        if not os.path.exists(self._path(name)):  # a range without ids: two cuts may be equal
            return 0
        width = np.int32 if self.text else np.int64
        count = os.path.getsize(self._path(f"{name}-lengths" if self.text else name)) // np.dtype(width).itemsize
        encoded = self._names(name, 0, count, 0, os.path.getsize(self._path(name))).dictionary_encode()
        order = np.asarray(pc.sort_indices(encoded.dictionary)).astype(np.int64)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(first, first + len(order))
        self._append(f"numbers-{part}", rank[np.asarray(encoded.indices)])
        self._append_names("sorted", encoded.dictionary.take(order))
        self._remove(name)
        self._remove(f"{name}-lengths")
        return len(order)

    def _append_names(self, name: str, names: Any) -> int:
        """Append ids to a file, text as lengths and bytes, and return the size of what was added."""
        if not self.text:
            return self._append(name, np.asarray(names))
        offsets, data = raw_text(names)
        self._append(f"{name}-lengths", np.diff(offsets).astype(np.int32))
        return self._append(name, data)

    def _names(self, name: str, first: int, count: int, start: int, size: int) -> Any:
        """Read `count` ids from a file: from the `first`, which begins at byte `start`."""
        import pyarrow as pa

        if not self.text:
            return pa.array(self._read(name, np.int64, first, count))
        offsets = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(self._read(f"{name}-lengths", np.int32, first, count), out=offsets[1:])
        return text_array(offsets, self._read(name, np.uint8, start, size))

    def _append(self, name: str, values: np.ndarray) -> int:
        with open(self._path(name), "ab") as file:
            file.write(np.ascontiguousarray(values).data)
        return values.nbytes

    def _read(self, name: str, dtype: Any, first: int, count: int) -> np.ndarray:
        itemsize = np.dtype(dtype).itemsize
        if count == 0:
            return np.empty(0, dtype)
        values = np.fromfile(self._path(name), dtype=dtype, count=count, offset=first * itemsize)
        if len(values) != count:
            raise WorkLost(f"{self._path(name)}: holds less than was written; is the disk full? Import again")
        return values

    def _map(self, name: str, dtype: Any) -> np.ndarray:
        path = self._path(name)
        if not os.path.exists(path) or os.path.getsize(path) == 0:
            return np.empty(0, dtype)
        return np.memmap(path, dtype=dtype, mode="r")

    def _remove(self, name: str) -> None:
        if os.path.exists(self._path(name)):
            os.remove(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)
