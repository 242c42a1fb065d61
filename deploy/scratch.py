"""Folders for the scripts beside this file, in the temporary folder of the machine.

Each is named by the process that works in it. Whoever makes one first removes those of processes that were killed,
and says so.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import getpid
from pathlib import Path

BEGINS = "snmf-deploy-"  # the number of the process follows, then what it is for


@contextmanager
def scratch(purpose: str) -> Iterator[Path]:
    """Make a folder for the body; first remove what killed processes left."""
    remove_left_folders()
    with tempfile.TemporaryDirectory(
        prefix=f"{BEGINS}{getpid()}-{purpose}-", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def remove_left_folders() -> None:
    """Remove the folders of processes that are dead, and say so."""
    for folder in Path(tempfile.gettempdir()).glob(f"{BEGINS}*"):
        pid = folder.name.removeprefix(BEGINS).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            print(f"{folder} was left by a process that was killed; it is removed", file=sys.stderr)
            shutil.rmtree(folder, ignore_errors=True)
