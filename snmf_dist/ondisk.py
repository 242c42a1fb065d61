"""Blocks that are not in memory between tasks: rows in files, and rows of A that are read when they are used."""

import contextlib
import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import dask
import numpy as np
from scipy import sparse

from snmf_dist.halo import Block, Need, local_block


@dataclass(frozen=True)
class Streamed:
    """A block of A that is not held: it is read when a task opens it."""

    read: Callable[[int, int], sparse.csr_matrix]
    bounds: np.ndarray
    i: int
    needs: tuple[Need, ...]

    def open(self) -> Block:
        """Read it."""
        A = self.read(int(self.bounds[self.i]), int(self.bounds[self.i + 1]))
        return local_block(A, self.bounds, self.i, self.needs)


class Scratch:
    """A folder for blocks, which goes with the last of them."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="snmf-dist-", dir=dask.config.get("temporary-directory", None))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def block(self, shape: tuple[int, int], dtype: Any) -> "OnDisk":
        """A new block; the room on disk is taken at once, so that a full disk is an error and not a crash."""
        path = os.path.join(self.folder, uuid.uuid4().hex)
        size = shape[0] * shape[1] * np.dtype(dtype).itemsize
        with open(path, "wb") as file:
            if size and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        return OnDisk(self, path, shape, np.dtype(dtype))


@dataclass(eq=False)
class OnDisk:
    """A block of rows in a file, which goes when nobody holds it any more."""

    scratch: Scratch
    path: str
    shape: tuple[int, int]
    dtype: np.dtype

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.remove(self.path)

    def open(self, mode: Literal["c", "r+"] = "c") -> np.ndarray:
        """The rows, which are read as they are used; what is written to them is kept with mode "r+" alone."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        return np.memmap(self.path, self.dtype, mode, shape=self.shape).view(np.ndarray)


def opened(value: Any) -> Any:
    """What a task works on: blocks on disk are read, others are as they are."""
    return value.open() if isinstance(value, Streamed | OnDisk) else value


def kept(value: Any, scratch: Scratch | None) -> Any:
    """What a task returns: rows go to disk if that is where they are kept."""
    if scratch is None or not isinstance(value, np.ndarray) or value.ndim != 2:
        return value
    block = scratch.block(value.shape, value.dtype)
    block.open("r+")[:] = value
    return block
