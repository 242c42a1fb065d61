"""Arrays whose memory is used again when nobody holds them any more.

Fresh memory costs a page fault for every few kB, which was half the time of an iteration at a million rows. A
`Buffers` belongs to one run in one process: what one run frees, no other run is given.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

KEPT = 16  # free arrays of a kind that are kept: three steps under way free five each
Kind = tuple[tuple[int, ...], np.dtype, Any]


class Buffers:
    """Lends arrays, and takes their memory back when the last view of them is gone. Threads may share it."""

    def __init__(self) -> None:
        self._free: dict[Kind, list[np.ndarray]] = {}
        self._lock = threading.RLock()  # an array may be collected, and so come back, while one is lent

    def empty(self, shape: tuple[int, int], dtype: Any, make: Callable[..., np.ndarray] = np.empty) -> np.ndarray:
        """Lend an array of undefined entries.

        Parameters
        ----------
        shape : tuple of int
            The rows and columns of the array.
        dtype : dtype
            The type of its entries.
        make : callable, default numpy.empty
            Makes an array of (shape, dtype) when there is no free one. Free arrays of another width are then
            given up, since the work that used them is over.
        """
        kind = (shape, np.dtype(dtype), make)
        with self._lock:
            free = self._free.get(kind)
            array = free.pop() if free else None
            if array is None:
                for other in [other for other in self._free if other[0][1:] != shape[1:]]:
                    del self._free[other]
        if array is None:
            array = make(shape, dtype)
        return np.asarray(_Borrowed(self, kind, array)) if array.size else array

    def take_back(self, kind: Kind, array: np.ndarray) -> None:
        """Keep the memory of an array that nobody holds any more."""
        with self._lock:
            free = self._free.setdefault(kind, [])
            if len(free) < KEPT:
                free.append(array)

    def clear(self) -> None:
        """Give up all free memory."""
        with self._lock:
            self._free.clear()


class _Borrowed:
    """Stands between an array and its memory; when the array and all views of it are gone, so is this."""

    def __init__(self, home: Buffers, kind: Kind, array: np.ndarray) -> None:
        self.home, self.kind, self.array = weakref.ref(home), kind, array
        self.__array_interface__ = array.__array_interface__

    def __del__(self) -> None:
        home = self.home()
        if home is not None:
            home.take_back(self.kind, self.array)
