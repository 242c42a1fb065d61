"""The files of a study: a plain folder, or an object store.

Layout, format version 1::

    study.json          graphs, settings and runs of the study, versions; with a checksum
    events.jsonl        what happened, a line each, only ever added to (at a URL events/*.json, an object each)
    runs.parquet        the table, a row a run; made anew from the files above whenever it changes
    runs/<run_id>.zarr  the result of a run; beside it <run_id>.zarr.checkpoint while it is under way
    errors/<run_id>.txt the traceback of a run that failed
    ks.parquet, labels.parquet, choice.json, choice.png
                        what choose_k found, if the runs are its own; written anew at each call
    phases.parquet, model.json, scaling.html, scaling.png, graphs/
                        of scaling_study, whose runs leave no results

A run is done when its result is whole: that is looked for in `runs`. The events add what results do not hold. So a
study stands a client that is killed at any moment, and lines that are damaged or missing.
"""

import itertools
import json
import os
import time
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import fsspec

from snmf_dist import storage
from snmf_dist.errors import (
    NoRoom,
    NotOurStore,
    StoreCorrupt,
    StoreExists,
    StoreNotFound,
    StoreVersionError,
    reason,
)

STUDY_VERSION = 1
SPEC, EVENTS, TABLE = "study.json", "events.jsonl", "runs.parquet"
SCREENED, LABELS, CHOICE, PICTURE = "ks.parquet", "labels.parquet", "choice.json", "choice.png"  # of choose_k
SCALING = "scaling"  # marks a study of scaling_study
PHASE_TABLE, MODEL, PAGE, SCALING_PICTURE = "phases.parquet", "model.json", "scaling.html", "scaling.png"
OURS = {
    *(SPEC, EVENTS, TABLE, SCREENED, LABELS, CHOICE, PICTURE, PHASE_TABLE, MODEL, PAGE, SCALING_PICTURE),
    *("events", "runs", "errors", "graphs"),
}


class StudyFolder:
    """Reads and writes the files of one study.

    Parameters
    ----------
    path : str
        A folder, or a URL.
    options : mapping, optional
        Passed to fsspec for a URL.
    """

    def __init__(self, path: str, options: storage.Options = None) -> None:
        self.path, self.options = path.rstrip("/"), options
        self.is_url = storage.is_url(path)
        self.files, self.root = fsspec.core.url_to_fs(self.path, **(storage.plain(options) or {}))
        self._numbers = itertools.count()
        self._file, self._read_to = -1, 0  # the file of events that was read, and how far
        self._events: list[dict[str, Any]] = []  # up to there
        self._objects: dict[str, dict[str, Any] | None] = {}  # at a URL: those read so far

    def result(self, run_id: str) -> str:
        """Where the result of a run is."""
        return f"{self.path}/runs/{run_id}.zarr"

    def exists(self) -> bool:
        """Whether a study is here."""
        return bool(self.files.exists(f"{self.root}/{SPEC}"))

    def check(self) -> None:
        """Refuse a place that holds something else, or that cannot be made."""
        if not self.is_url:
            parent = os.path.dirname(self.path)
            if not os.path.isdir(parent):
                raise StoreNotFound(f"{parent}: no such directory; make it first")
        if not self.files.lexists(self.root):
            return
        if not self.files.isdir(self.root):
            raise StoreExists(f"{self.path}: is a file; expected a folder for the study, or a new path")
        names = [os.path.basename(found.rstrip("/")) for found in self.files.ls(self.root, detail=False)]
        self.files.invalidate_cache()  # other processes may write here
        others = [name for name in names if name.lstrip(".").split(".tmp")[0] not in OURS]
        if others and not self.exists():
            raise StoreExists(f"{self.path}: holds {others[0]} and no study; choose another folder, or a new path")

    def prepare(self) -> None:
        """Make the folder."""
        if self.is_url:
            return
        try:
            for name in ("runs", "errors"):
                os.makedirs(os.path.join(self.path, name), exist_ok=True)
        except OSError as error:
            raise NoRoom(f"{self.path}: cannot be written ({reason(error)})") from error

    def read_spec(self) -> dict[str, Any]:
        """What the study is.

        Raises
        ------
        StoreNotFound
            There is no study here.
        StoreCorrupt
            The file is not what was written.
        StoreVersionError
            It was written by a newer version.
        """
        place = f"{self.path}/{SPEC}"
        if not self.exists():
            raise StoreNotFound(f"{place}: no such file; expected the folder of a study, as fit_many writes it")
        again = "remove this file and give the command of the study again: its results are kept"
        try:
            spec = json.loads(self.files.cat_file(f"{self.root}/{SPEC}"))
        except (ValueError, RecursionError) as error:
            raise StoreCorrupt(f"{place}: cannot be read as JSON ({error}); {again}") from None
        if not isinstance(spec, dict) or spec.get("kind") != "study":
            raise NotOurStore(f"{place}: is not the description of a study of snmf_dist; choose another folder")
        if spec.get("version") != STUDY_VERSION:
            raise StoreVersionError(
                f"{place}: written in format version {spec.get('version')}, this snmf_dist reads version "
                f"{STUDY_VERSION}; upgrade snmf-dist, or choose another folder"
            )
        if spec.pop("checksum", None) != _checksum(spec):
            raise StoreCorrupt(f"{place}: is not what was written; {again}")
        return spec

    def write_spec(self, spec: Mapping[str, Any]) -> None:
        """Write what the study is."""
        whole = json.loads(json.dumps({"kind": "study", "version": STUDY_VERSION, **spec}))
        self.write(SPEC, json.dumps({**whole, "checksum": _checksum(whole)}, indent=1).encode())

    def write(self, name: str, content: bytes) -> None:
        """Write a file; a reader finds the one before or the new one."""
        try:
            if self.is_url:
                self.files.pipe_file(f"{self.root}/{name}", content)
                return
            place = os.path.join(self.path, name)
            fresh = os.path.join(self.path, os.path.dirname(name), f".{os.path.basename(name)}.tmp{os.getpid()}")
            try:
                with open(fresh, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(fresh, place)
            except BaseException:
                with suppress(OSError):
                    os.remove(fresh)
                raise
        except OSError as error:
            raise _not_written(f"{self.path}/{name}", error) from error

    def add_event(self, event: str, run_id: str, **facts: Any) -> dict[str, Any]:
        """Add what happened to a run, and return it."""
        entry = {"event": event, "run_id": run_id, "time": time.time(), **facts}
        entry = json.loads(json.dumps(entry))
        line = json.dumps({**entry, "checksum": _checksum(entry)})
        try:
            if self.is_url:
                name = f"{time.time_ns():020d}-{os.getpid()}-{next(self._numbers)}.json"
                self.files.pipe_file(f"{self.root}/events/{name}", line.encode())
                return entry
            with open(os.path.join(self.path, EVENTS), "ab+") as file:
                torn = file.tell() > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
                file.write(("\n" if torn else "").encode() + line.encode() + b"\n")
        except OSError as error:
            raise _not_written(f"{self.path}/{EVENTS}", error) from error
        return entry

    def events(self) -> list[dict[str, Any]]:
        """What happened, in order; lines that are not what was written are left out.

        Only what is new since the last call is read.
        """
        return self._events_of_objects() if self.is_url else self._events_of_file()

    def _events_of_file(self) -> list[dict[str, Any]]:
        place = os.path.join(self.path, EVENTS)
        if not os.path.exists(place):
            return []
        with open(place, "rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_ino != self._file or facts.st_size < self._read_to:  # another file
                self._file, self._read_to, self._events = facts.st_ino, 0, []
            file.seek(self._read_to)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._events += _parsed_all(whole.split(b"\n"))
        self._read_to += len(whole)
        return [*self._events, *_parsed_all([fresh[len(whole) :]])]

    def _events_of_objects(self) -> list[dict[str, Any]]:
        if not self.files.exists(f"{self.root}/events"):
            return []
        names = sorted(self.files.find(f"{self.root}/events"))
        fresh = [name for name in names if name not in self._objects]
        if fresh:
            found = self.files.cat(fresh).values()
            self._objects.update(zip(fresh, map(_parsed, found), strict=True))
        return [entry for name in names if (entry := self._objects[name]) is not None]

    def read(self, name: str) -> bytes | None:
        """A file, None if it is not there."""
        place = f"{self.root}/{name}"
        return self.files.cat_file(place) if self.files.exists(place) else None

    def read_text(self, name: str) -> str | None:
        """The text of a file, None if it is not there."""
        found = self.read(name)
        return None if found is None else found.decode(errors="replace")

    def write_choice(self, choice: Mapping[str, Any]) -> None:
        """Write what choose_k suggests."""
        whole = json.loads(json.dumps(choice))
        self.write(CHOICE, json.dumps({**whole, "checksum": _checksum(whole)}, indent=1).encode())

    def read_choice(self) -> dict[str, Any] | None:
        """What choose_k suggests, None if it was not asked or has not answered yet.

        Raises
        ------
        StoreCorrupt
            The file is not what was written.
        """
        content = self.read(CHOICE)
        if content is None:
            return None
        try:
            choice = json.loads(content)
            if isinstance(choice, dict) and choice.pop("checksum", None) == _checksum(choice):
                return choice
        except (ValueError, RecursionError):
            pass
        again = "give the call of choose_k again: its fits are kept"
        raise StoreCorrupt(f"{self.path}/{CHOICE}: is not what choose_k wrote; {again}")

    def remove(self, name: str) -> None:
        """Remove a file or folder of the study, if it is there."""
        place = f"{self.root}/{name}"
        if self.files.exists(place):
            self.files.rm(place, recursive=True)


def _parsed_all(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    return [entry for line in lines if (entry := _parsed(line)) is not None]


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The event of a line, None if it is torn or damaged."""
    try:
        entry = json.loads(line)
        good = isinstance(entry, dict) and entry.pop("checksum", None) == _checksum(entry)
        return entry if good and isinstance(entry["run_id"], str) and isinstance(entry["event"], str) else None
    except (ValueError, KeyError, RecursionError):
        return None


def _checksum(value: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


def _not_written(place: str, error: OSError) -> NoRoom:
    return NoRoom(
        f"{place}: cannot be written ({reason(error)}); what was done is kept: make room, and give the same "
        "command again"
    )
