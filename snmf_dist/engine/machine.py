"""The machine of this process: cores and memory as Dask sees them, cgroups included; threads; temporary files."""

import ctypes
import platform
import resource
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import dask
from dask.system import cpu_count
from dask.utils import parse_bytes as dask_parse_bytes
from threadpoolctl import threadpool_limits

from snmf_dist.errors import InputError

MEMORY_SHARE = 0.5  # of the machine's memory that a process may use unless it is told otherwise


def cores() -> int:
    """Cores this process may use, as its affinity and its cgroup allow."""
    return int(cpu_count())


def processor() -> str:
    """The name of the processor, as far as the system tells."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def threads() -> int:
    """Threads that work at a time in this process: Dask's ``num_workers``, or one for each core."""
    return given_threads() or cores()


def given_threads() -> int | None:
    """Dask's ``num_workers``, if it is set."""
    number = dask.config.get("num_workers", None)
    return int(number) if number else None


@contextmanager
def using_threads(number: int) -> Iterator[None]:
    """Let so many threads work in the body."""
    with dask.config.set(num_workers=number):
        yield


def memory() -> float:
    """Bytes of memory this process may use at most, as its cgroup and its limits allow."""
    from distributed.system import memory_limit

    return float(memory_limit())


def peak_memory() -> int:
    """The most bytes of memory that this process has had so far."""
    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found if sys.platform == "darwin" else 1024 * found


def forget_peak() -> None:
    """Have `recent_peak` begin anew, where the system can do that."""
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def recent_peak() -> int:
    """The most bytes of memory that this process has had since `forget_peak`."""
    with suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    return peak_memory()


def bytes_moved() -> tuple[int, int]:
    """Bytes that this process has read from files and written to them so far; zeros where it is not known."""
    with suppress(OSError), open("/proc/self/io", encoding="ascii") as file:
        counts = dict(line.split(": ") for line in file)
        return int(counts["rchar"]), int(counts["wchar"])
    return 0, 0


def memory_limit(limit: int | str | None, *, worker: float | None = None) -> float:
    """Bytes that a process may use.

    Parameters
    ----------
    limit : int, str or None
        The number of bytes, or text such as ``"4GiB"``; None takes the default.
    worker : float, optional
        The limit of the smallest worker of a cluster; without it the default is half of this machine's memory.
    """
    if limit is None:
        return worker or MEMORY_SHARE * memory()
    try:
        return float(parse_bytes(limit))
    except (ValueError, TypeError, AttributeError):
        raise InputError(f"memory_limit is {limit!r}; expected bytes, or text as '4GiB'") from None


def parse_bytes(text: int | str) -> int:
    """Bytes of a number or of text such as ``"4GiB"``.

    Examples
    --------
    >>> parse_bytes("1.5kB")
    1500
    """
    return int(dask_parse_bytes(text))


def temporary_folder() -> str:
    """Where temporary files are made: Dask's ``temporary-directory``, or the system's."""
    return dask.config.get("temporary-directory", None) or tempfile.gettempdir()


def release_memory() -> None:
    """Give memory that was freed back to the system; glibc keeps what threads free."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


_blas = threading.Lock()
_blas_users: list[Any] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread a task while anyone in this process is in here.

    Task threads times BLAS threads fight for the cores, and BLAS adds in another order on other numbers of
    threads. Worker processes are started with one BLAS thread by their nanny.
    """
    with _blas:
        _blas_users.append(None if _blas_users else threadpool_limits(1, user_api="blas"))
    try:
        yield
    finally:
        with _blas:
            if len(_blas_users) > 1:
                _blas_users.pop()
            else:
                _blas_users.pop().restore_original_limits()
