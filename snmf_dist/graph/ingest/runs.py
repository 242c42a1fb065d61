"""Runs: files of entries sorted by row block, from which the entries of a block are read in the order they came.

A file is written in one piece. It holds the number of entries and the kind of weights (int64), where each block
begins (int64, (P + 1,)), then for all entries the row within its block (uint32), the column (uint32, or int64
beyond 2³²) and the weight, in the smallest of a few types that keeps it exactly.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from snmf_dist.errors import WorkLost

EXACT = (np.uint8, np.float32, np.float64)  # types of weights, the smallest first
PREFIX = 2  # numbers before the cuts


def packed(weights: np.ndarray) -> np.ndarray:
    """Weights in the smallest type that keeps them exactly; none at all if all are 1.

    Examples
    --------
    >>> packed(np.array([1.0, 2.0])).dtype, packed(np.array([1.0, 1.0])).size, packed(np.array([0.1])).dtype
    (dtype('uint8'), 0, dtype('float64'))
    """
    if (weights == 1).all():
        return np.empty(0, np.uint8)
    with np.errstate(over="ignore", invalid="ignore"):
        for kind in EXACT[:-1]:
            small = weights.astype(kind)
            if np.array_equal(small, weights):
                return small
    return weights


def unpacked(weights: np.ndarray, count: int) -> np.ndarray:
    """The `count` weights that `packed` was given, in float64."""
    return weights.astype(np.float64) if weights.size or not count else np.ones(count)


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A file to write that is at `path` when it is whole; a task that is run twice writes it twice."""
    work = f"{path}.{uuid.uuid4().hex[:8]}"
    with open(work, "wb") as file:
        yield file
    os.rename(work, path)


@dataclass(frozen=True)
class RunFiles:
    """The runs in a folder.

    Attributes
    ----------
    folder : str
        An existing folder.
    bounds : ndarray of int64, shape (P + 1,)
        The row blocks.
    """

    folder: str
    bounds: np.ndarray

    def write(self, name: str, rows: np.ndarray, columns: np.ndarray, weights: np.ndarray) -> None:
        """Write entries as a run."""
        blocks = self.block_of(rows)
        order = np.argsort(blocks, kind="stable")
        counts = np.bincount(blocks, minlength=len(self.bounds) - 1)
        local = (rows - self.bounds[blocks])[order].astype(np.uint32)
        weights = packed(weights)
        kind = EXACT.index(weights.dtype.type) if weights.size else -1
        head = np.concatenate(([len(rows), kind, 0], np.cumsum(counts))).astype(np.int64)
        parts = [head, local, columns[order].astype(self._column), weights[order] if weights.size else weights]
        with whole_file(self._path(name)) as file:
            for part in parts:
                file.write(part.data)  # tofile would not say that the disk is full

    def read(self, names: Iterable[str], i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows within block `i`, columns, and weights of its entries in the runs, one run after the other."""
        found = [self._read_one(name, i) for name in names]
        none = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        rows, columns, weights = (np.concatenate(parts) for parts in zip(none, *found, strict=True))
        return rows, columns, weights

    def remove(self, names: Iterable[str]) -> None:
        """Remove runs."""
        for name in names:
            os.remove(self._path(name))

    def block_of(self, rows: np.ndarray) -> np.ndarray:
        """The block of each row, in 16 bits if they suffice: those are sorted much faster."""
        P = len(self.bounds) - 1
        size = int(self.bounds[1] - self.bounds[0])
        equal = bool((self.bounds[:-1] == size * np.arange(P)).all())
        found = rows // size if equal else np.searchsorted(self.bounds, rows, side="right") - 1
        return np.asarray(found).astype(np.uint16 if np.iinfo(np.uint16).max >= P else np.int64)

    def _read_one(self, name: str, i: int) -> Sequence[np.ndarray]:
        path, start = self._path(name), 8 * (PREFIX + len(self.bounds))
        try:
            with open(path, "rb", buffering=0) as file:
                count, kind = _numbers(file, np.int64, 0, PREFIX)
                low, high = map(int, _numbers(file, np.int64, 8 * (PREFIX + i), 2))
                if low == high:
                    return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
                rows = _numbers(file, np.uint32, start + 4 * low, high - low)
                start += 4 * int(count)
                width = np.dtype(self._column).itemsize
                columns = _numbers(file, self._column, start + width * low, high - low)
                start += width * int(count)
                if kind < 0:
                    return rows.astype(np.int64), columns.astype(np.int64), np.ones(high - low)
                weights = _numbers(file, EXACT[kind], start + np.dtype(EXACT[kind]).itemsize * low, high - low)
        except (EOFError, FileNotFoundError) as error:
            raise WorkLost(f"{path}: holds less than was written; is the disk full? Import again") from error
        return rows.astype(np.int64), columns.astype(np.int64), weights.astype(np.float64)

    @property
    def _column(self) -> Any:
        return np.uint32 if self.bounds[-1] <= np.iinfo(np.uint32).max else np.int64

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)


def _numbers(file: BinaryIO, kind: Any, at: int, count: int) -> np.ndarray:
    """Numbers from a place in a file."""
    found = np.fromfile(file, kind, count, offset=at - file.tell())
    if len(found) < count:
        raise EOFError
    return found
