"""Arrays whose memory is used again when nobody holds them any more.

Fresh memory costs a page fault for every few kB, which was half the time of an iteration at a million rows.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

SPARES = 16  # of a kind that are kept at a time: three steps under way let go of five each
_free: dict[Any, list[np.ndarray]] = {}


class _Lease:
    """Stands between an array and its memory, and takes that back when the array and all cuts of it are gone."""

    def __init__(self, kind: Any, array: np.ndarray) -> None:
        self.kind, self.array = kind, array
        self.__array_interface__ = array.__array_interface__

    def __del__(self) -> None:
        kept = _free.setdefault(self.kind, [])
        if len(kept) < SPARES:
            kept.append(self.array)


def empty(shape: tuple[int, int], dtype: Any, make: Callable[..., np.ndarray] = np.empty) -> np.ndarray:
    """A new array, whatever stands in it, in memory that was used before if there is some of the same kind.

    Parameters
    ----------
    make : callable, default numpy.empty
        What makes one of (shape, dtype) otherwise. Memory kept for arrays of another width is then given up: what
        was done with those is over.
    """
    kind = (shape, np.dtype(dtype), make)
    with contextlib.suppress(KeyError, IndexError):
        return np.asarray(_Lease(kind, _free[kind].pop()))
    for other in [other for other in _free if other[0][1:] != shape[1:]]:
        _free.pop(other, None)
    array = make(shape, dtype)
    return np.asarray(_Lease(kind, array)) if array.size else array


def forget() -> None:
    """Give up all memory that is kept."""
    _free.clear()
