"""One writer of an output at a time: a second one is refused before it works, and told who the first one is.

A lock is a file beside the output, ``.<name>.lock``, that its owner keeps locked (``flock``) and that names the
owner. The system frees it when the owner dies, however that happens: a file that is there but not locked is stale.
Other hosts do not see the lock on every network file system, so the name of an owner on another host counts by
itself, for `STALE` seconds. Object stores have no locks.
"""

import fcntl
import json
import os
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import IO, Any

from snmf_dist import storage
from snmf_dist.errors import OutputBusy, ResultWarning

STALE = 24 * 3600.0  # seconds after which the lock of an owner on another host counts no longer


@contextmanager
def only_writer(path: str, *, or_else: str = "wait for it, or choose another output") -> Iterator[None]:
    """Keep other writers away from `path` while the body runs; nothing is done for a URL.

    Parameters
    ----------
    path : str
        The output.
    or_else : str
        What the second writer is told to do.

    Raises
    ------
    OutputBusy
        Another run, in this process or in another, is writing there.
    """
    if storage.is_url(path):
        yield
        return
    parent, name = os.path.split(path)
    with _locked(os.path.join(parent, f".{name}.lock"), path, or_else):
        yield


@contextmanager
def _locked(file_name: str, path: str, or_else: str) -> Iterator[None]:
    file = _open_and_lock(file_name, path, or_else)
    try:
        file.seek(0)
        left = _parse(file.read())
        if left is not None:
            _judge(left, file_name, path)
        file.seek(0)
        file.truncate()
        with suppress(OSError):  # a full disk: the lock holds without a name too
            file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}))
            file.flush()
        try:
            yield
        finally:
            with suppress(OSError):
                os.remove(file_name)
    finally:
        with suppress(OSError):
            file.close()


def _open_and_lock(file_name: str, path: str, or_else: str) -> IO[str]:
    """Open the file and lock it; again if its last owner removed it in between."""
    while True:
        file = open(file_name, "a+", encoding="utf-8")  # noqa: SIM115 (open as long as the lock)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = _parse(file.read())
            file.close()
            raise OutputBusy(f"{path}: another run is writing here ({_describe(owner)}); {or_else}") from None
        except OSError:
            return file  # a file system without locks: the name in the file must do
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(file_name)):
                return file
        file.close()


def _judge(left: dict[str, Any], file_name: str, path: str) -> None:
    """Refuse the lock if its owner on another host may be alive; else warn that it is taken over."""
    age = time.time() - left["since"]
    if left["host"] != socket.gethostname() and age < STALE:
        raise OutputBusy(
            f"{path}: another run may be writing here ({_describe(left)}), and this host cannot tell; wait "
            f"for it, or remove {file_name} if it is gone"
        )
    warnings.warn(
        f"{path}: taken over from a run that did not end in order ({_describe(left)})", ResultWarning, stacklevel=6
    )


def _parse(text: str) -> dict[str, Any] | None:
    """The owner that a lock file names; None if it names none."""
    try:
        found = json.loads(text)
        return {"pid": int(found["pid"]), "host": str(found["host"]), "since": float(found["since"])}
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _describe(owner: dict[str, Any] | None) -> str:
    if owner is None:
        return "its owner is unknown"
    age = timedelta(seconds=max(0, int(time.time() - owner["since"])))
    return f"process {owner['pid']} on {owner['host']}, for {age}"
