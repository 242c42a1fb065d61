"""Errors and warnings of snmf_dist: one root, and a standard parent for each.

A message names the thing, says what was found and what was expected, and ends with the next move.
"""

import errno


def is_full(error: BaseException) -> bool:
    """Tell whether writing failed because the disk is full; NumPy then says "8 requested and 5 written"."""
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "requested and" in str(error)


def reason(error: BaseException) -> str:
    """Say in words why writing failed.

    Examples
    --------
    >>> reason(OSError(28, "No space left on device"))
    'no room is left on the disk'
    """
    if is_full(error):
        return "no room is left on the disk"
    if getattr(error, "errno", None) == errno.EPIPE:
        return "its reader has gone"
    text = getattr(error, "strerror", None) or str(error).strip() or "no message"
    return f"{type(error).__name__}: {text}"


class SnmfError(Exception):
    """Root of every error this package raises on purpose."""


class InputError(SnmfError, ValueError):
    """An argument or the user's data is not what the computation needs."""


class StoreNotFound(SnmfError, FileNotFoundError):
    """Nothing is at the path, or the path cannot be reached."""


class StoreExists(SnmfError, FileExistsError):
    """The output path is taken and ``overwrite`` was not asked for."""


class OutputBusy(SnmfError, BlockingIOError):
    """Another run is writing to the same output."""


class NotOurStore(SnmfError, ValueError):
    """Something is at the path, but not a store of the expected kind."""


class StoreVersionError(SnmfError, ValueError):
    """The store was written in a format this version does not read."""


class StoreIncomplete(SnmfError, ValueError):
    """The store was never finished."""


class StoreCorrupt(SnmfError, ValueError):
    """The store is finished, but what it holds is not what was written."""


class ClusterError(SnmfError, ConnectionError):
    """The Dask cluster cannot be reached or cannot do this work."""


class WorkLost(SnmfError, RuntimeError):
    """Work under way was lost and could not be repeated."""


class RowsLost(WorkLost):
    """Rows that were on a worker are gone with it; the run can start again on the workers that are left."""


class WorkersJoined(RowsLost):
    """Rows are to be spread anew, over workers that have joined; the run continues from its checkpoint."""


class DoesNotFit(SnmfError, MemoryError):
    """The work needs more memory than it may use."""


class NoRoom(SnmfError, OSError):
    """There is no room on disk for the files that the work needs."""


class ResultNotSaved(SnmfError, OSError):
    """The run is done but its result could not be written; `solution` still has it."""

    def __init__(self, message: str, solution: object = None) -> None:
        super().__init__(message)
        self.solution = solution


class Interrupted(SnmfError, KeyboardInterrupt):
    """The run was asked to end.

    Attributes
    ----------
    signal : int
        The number of the signal.
    checkpoint : str or None
        The folder of the checkpoint that the same call continues from, if one was written.
    """

    def __init__(self, signal: int, checkpoint: str | None = None) -> None:
        kept = f"the same call continues from {checkpoint}" if checkpoint else "no checkpoint was written"
        super().__init__(f"interrupted; {kept}")
        self.signal, self.checkpoint = signal, checkpoint


class GraphWarning(UserWarning):
    """The graph is usable, but has a property the user will want to know of."""


class ResultWarning(UserWarning):
    """The result is usable, but has a property the user will want to know of."""


class SlowKernels(UserWarning):
    """The compiled kernels do not work here; slower ones do their work."""


class NotConverged(ResultWarning):
    """The run stopped before the stopping rule was met."""
