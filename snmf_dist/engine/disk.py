"""Arrays in temporary files without a name: they are read and written as if in memory, but need not stay there.

What a process touches of such an array is in its memory until `let_go` says that it is not needed for now; the
system keeps it in its own cache as long as there is room, and on disk else. A file without a name is gone with the
last array on it, however the process ends.
"""

import mmap
import os
import shutil
import tempfile
from typing import Any

import numpy as np

from snmf_dist.engine.machine import temporary_folder
from snmf_dist.errors import NoRoom

SETTING = "Dask's temporary-directory (DASK_TEMPORARY_DIRECTORY)"


def folder() -> str:
    """The folder of temporary files, made if need be."""
    path = temporary_folder()
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise NoRoom(
            f"{path}: this folder for temporary files is not there and cannot be made ({error.strerror}); set "
            f"{SETTING} to one that can be written to"
        ) from error
    return path


def check_room(size: float) -> None:
    """Refuse work whose temporary files need more room than is free; work without any needs no folder."""
    if not size:
        return
    free = shutil.disk_usage(folder()).free
    if size > free:
        raise NoRoom(
            f"{folder()}: needs {size / 1e9:.2f} GB for temporary files, but {free / 1e9:.2f} GB are free; give "
            f"more memory, free some room, or set {SETTING} elsewhere",
        )


def empty_on_disk(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A new array of zeros; its room is taken at once, so that a full disk is an error and not a crash."""
    if 0 in shape:
        return np.empty(shape, dtype)
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    with tempfile.TemporaryFile(prefix="snmf-dist-", dir=folder()) as file:
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        except OSError as error:
            check_room(size)
            raise NoRoom(
                f"{folder()}: no temporary file of {size / 1e9:.2f} GB ({error}); free some room"
            ) from error
        return np.ndarray(shape, dtype, mmap.mmap(file.fileno(), size))


def let_go(array: np.ndarray, first: int = 0, last: int | None = None) -> None:
    """Say that rows `first` to `last` of an array on disk are not needed for now; others are left alone."""
    pages: Any = array.base
    while pages is not None and not isinstance(pages, mmap.mmap):
        pages = pages.base if isinstance(pages, np.ndarray) else getattr(pages, "array", None)
    if pages is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    row = array.nbytes // len(array)
    start = first * row // mmap.PAGESIZE * mmap.PAGESIZE
    stop = array.nbytes if last is None else last * row
    if stop > start:
        pages.madvise(mmap.MADV_DONTNEED, start, stop - start)
