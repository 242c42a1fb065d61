"""The scratch files of a build: one folder for each block of each stage, visible only when it is complete.

A killed build leaves the files of finished blocks, and the next build resumes from them. ``settings.json`` beside
them says which points and settings they belong to.
"""

import json
import os
import shutil
import uuid
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist.engine.client import run_tasks
from snmf_dist.errors import InputError, StoreCorrupt
from snmf_dist.graph.store import StageProgress


class ScratchFiles:
    """Named groups of arrays in a folder: ``save("knn", 3, indices=…)``, ``load("knn", 3, "indices")``.

    Parameters
    ----------
    folder : str
        An existing folder that all workers see.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def path(self, stage: str, block: int) -> str:
        """The folder with the arrays of one block of a stage."""
        return os.path.join(self.folder, stage, str(block))

    def has(self, stage: str, block: int) -> bool:
        """Whether the block was finished."""
        return os.path.isdir(self.path(stage, block))

    def save(self, stage: str, block: int, **arrays: Any) -> None:
        """Write the arrays (or CSR matrices) of a block, all of them or none."""
        path = self.path(stage, block)
        work = f"{path}.{uuid.uuid4().hex[:8]}.partial"
        os.makedirs(work)
        try:
            for name, values in arrays.items():
                if sparse.issparse(values):
                    sparse.save_npz(os.path.join(work, f"{name}.npz"), values, compressed=False)
                else:
                    np.save(os.path.join(work, f"{name}.npy"), values)
            if os.path.isdir(path):  # a task that was run twice: the first one counts
                shutil.rmtree(work)
            else:
                os.rename(work, path)
        except OSError:
            shutil.rmtree(work, ignore_errors=True)
            if not os.path.isdir(path):
                raise

    def load(self, stage: str, block: int, name: str, *, rows: slice | None = None) -> Any:
        """Read an array of a block as a memory map, or only its `rows` if they are given."""
        stem = os.path.join(self.path(stage, block), name)
        try:
            if os.path.exists(f"{stem}.npz"):
                matrix = sparse.csr_matrix(sparse.load_npz(f"{stem}.npz"))
                return matrix if rows is None else matrix[rows]
            array = np.load(f"{stem}.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise StoreCorrupt(
                f"{stem}: cannot be read ({error}); start the build over with resume=False"
            ) from error
        return array if rows is None else np.asarray(array[rows])

    def vector(self, stage: str, blocks: int, name: str) -> np.ndarray:
        """The arrays `name` of all blocks in one: a number for each row."""
        return np.concatenate([self.load(stage, i, name) for i in range(blocks)])

    def finish(self, stage: str) -> None:
        """Mark a stage as complete; its files may be dropped from now on."""
        with open(os.path.join(self.folder, f"{stage}.done"), "w", encoding="utf-8"):
            pass

    def finished(self, stage: str) -> bool:
        """Whether all blocks of a stage were made."""
        return os.path.exists(os.path.join(self.folder, f"{stage}.done"))

    def undo(self, stage: str) -> None:
        """Forget a stage, so that it is done again."""
        self.drop(stage)
        with suppress(FileNotFoundError):
            os.remove(os.path.join(self.folder, f"{stage}.done"))

    def drop(self, stage: str) -> None:
        """Remove what a stage left, once nothing needs it."""
        shutil.rmtree(os.path.join(self.folder, stage), ignore_errors=True)


def open_scratch(
    folder: str, settings: Mapping[str, Any], derived: Mapping[str, Any], *, resume: bool
) -> tuple[ScratchFiles, dict[str, Any]]:
    """Open the folder of a build, and return it with all settings of the build.

    Parameters
    ----------
    folder : str
        The folder of the build; it is made if it is not there.
    settings : mapping
        What the user asked for; an unfinished build with other settings is refused.
    derived : mapping
        What follows from the settings and the machine; an unfinished build keeps its own.
    resume : bool
        Whether to continue an unfinished build; False removes its files.

    Raises
    ------
    InputError
        The folder holds a build begun with other settings, and `resume` would mix the two.
    """
    note = os.path.join(folder, "settings.json")
    ours = {"settings.json.partial", "lock"}  # builds of 0.1 had their lock in here
    if (
        os.path.exists(folder)
        and not os.path.exists(note)
        and (not os.path.isdir(folder) or set(os.listdir(folder)) - ours)
    ):
        raise InputError(f"{folder}: is in the way of the build and not a build of ours; move it away")
    if not resume:
        for entry in os.scandir(folder) if os.path.isdir(folder) else ():
            if entry.name != "lock":
                shutil.rmtree(entry.path) if entry.is_dir() else os.remove(entry.path)
    if not os.path.exists(note):
        os.makedirs(folder, exist_ok=True)
        with open(f"{note}.partial", "w", encoding="utf-8") as file:
            json.dump({**settings, **derived}, file)
        os.rename(f"{note}.partial", note)
    try:
        with open(note, encoding="utf-8") as file:
            begun = json.load(file)
    except ValueError as error:
        raise StoreCorrupt(f"{note}: cannot be read ({error}); pass resume=False to start over") from error
    differ = [
        f"{key} was {begun.get(key)}, is {settings[key]}" for key in settings if begun.get(key) != settings[key]
    ]
    if differ:
        raise InputError(
            f"{folder}: holds an unfinished build of other points or settings ({', '.join(differ)}); pass "
            "resume=False to start over"
        )
    return ScratchFiles(folder), begun


def run_missing(
    files: ScratchFiles,
    stage: str,
    task: Callable[[int], Any],
    count: int,
    progress: StageProgress,
    *,
    at_once: int,
) -> None:
    """Run the blocks of a stage whose files are not there yet.

    Parameters
    ----------
    files : ScratchFiles
        Where the task writes its results.
    stage : str
        The name that the task saves its results under.
    task : callable
        Called with the number of a block.
    count : int
        Number of blocks of the stage.
    progress : callable
        Called as ``progress(stage, done, total)``.
    at_once : int
        Number of blocks that one process works on at a time.
    """
    if files.finished(stage):
        return
    missing = [i for i in range(count) if not files.has(stage, i)]
    there = count - len(missing)
    progress(stage, there, count)
    run_tasks(task, missing, threads=at_once, done=lambda k: progress(stage, there + k, count))
    files.finish(stage)
