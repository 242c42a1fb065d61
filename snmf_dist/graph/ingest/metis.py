"""METIS graph files: a line for each node with its neighbours, counted from 1.

The first line has the number of nodes and of edges, then optionally ``fmt`` and the number of vertex weights.
``fmt`` is three digits: whether there are vertex sizes, vertex weights, edge weights. Lines that begin with % are
comments.
"""

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import fsspec
import numpy as np

from snmf_dist import storage
from snmf_dist.errors import InputError, SnmfError
from snmf_dist.graph.ingest.edges import Edges, EdgeSource
from snmf_dist.untrusted import check_nodes

METIS_SUFFIXES = (".graph", ".metis")
LINES = 1 << 14  # read at a time


class _Header(NamedTuple):
    """Nodes, edges, numbers before a node's neighbours, and whether neighbours have weights."""

    n: int
    edges: int
    skip: int
    weighted: bool


def is_metis(path: str) -> bool:
    """Tell by its name whether `path` is a METIS graph."""
    return path.lower().removesuffix(".gz").endswith(METIS_SUFFIXES)


def from_metis(path: str, options: storage.Options) -> EdgeSource:
    """A METIS graph; each edge stands in the lines of both its nodes."""
    how = storage.plain(options)
    with _lines(path, how) as lines:
        header = _read_header(path, next(lines, b"").split())
    check_nodes(header.n, 2 * header.edges, path, given=True)

    def batches() -> Iterator[Edges]:
        done = entries = 0
        with _lines(path, how) as lines:
            next(lines)
            while some := list(islice(lines, LINES)):
                some = some if done + len(some) <= header.n else _without_blank_end(some, header.n - done, path)
                edges = _edges(some, done, header, path)
                done, entries = done + len(some), entries + len(edges.rows)
                yield edges
        if done != header.n or entries != 2 * header.edges:
            raise InputError(
                f"{path}: has {done} nodes and {entries} neighbours; its first line says {header.n} and twice "
                f"{header.edges}"
            )

    return EdgeSource(header.n, 2 * header.edges, batches, {"source": os.path.basename(path)})


class _lines:
    """The lines of a file without its comments; errors name the file."""

    def __init__(self, path: str, options: dict[str, Any] | None) -> None:
        self.path = path
        self._open = fsspec.open(path, "rb", compression="infer", **(options or {}))

    def __enter__(self) -> Iterator[bytes]:
        return (line for line in self._open.__enter__() if not line.lstrip().startswith(b"%"))

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._open.__exit__(kind, error, trace)
        if isinstance(error, OSError | ValueError | EOFError) and not isinstance(error, SnmfError):
            raise InputError(f"{self.path}: cannot be read as a METIS graph ({error})") from error


def _read_header(path: str, words: list[bytes]) -> _Header:
    try:
        n, edges = int(words[0]), int(words[1])
        flags = (words[2].decode() if len(words) > 2 else "0").zfill(3)
        constraints = int(words[3]) if len(words) > 3 else int(flags[1] == "1")
    except (ValueError, IndexError):
        n = edges = -1
        flags, constraints = "000", 0
    if n < 0 or edges < 0 or len(words) > 4 or not set(flags) <= {"0", "1"} or len(flags) != 3 or constraints < 0:
        raise InputError(
            f"{path}: its first line is {b' '.join(words)[:60]!r}; expected nodes and edges, then optionally "
            "three digits and a number, as METIS has it"
        )
    return _Header(n, edges, int(flags[0] == "1") + constraints * (flags[1] == "1"), flags[2] == "1")


def _without_blank_end(lines: list[bytes], room: int, path: str) -> list[bytes]:
    """The lines of nodes, when what stands after them is blank."""
    if any(line.strip() for line in lines[room:]):
        raise InputError(f"{path}: has more lines than its first line says nodes; expected a line for each")
    return lines[:room]


def _edges(lines: list[bytes], first: int, header: _Header, path: str) -> Edges:
    """The edges of the nodes from `first`, one a line."""
    words = [line.split() for line in lines]
    counts = np.array([len(line) for line in words]) - header.skip
    bad = (counts < 0) | ((counts % 2 == 1) if header.weighted else False)
    if bad.any():
        raise InputError(f"{path}: the line of node {first + int(np.argmax(bad)) + 1} has a number too few")
    cells = [word for line in words for word in line[header.skip :]]
    step = 1 + header.weighted
    ends = np.array(cells[::step], dtype=np.int64) - 1
    weights = np.array(cells[1::2], dtype=np.float64) if header.weighted else np.ones(len(ends))
    rows = np.repeat(np.arange(first, first + len(lines)), counts // step)
    if len(ends) and (ends.min() < 0 or ends.max() >= header.n):
        at = int(np.argmax((ends < 0) | (ends >= header.n)))
        raise InputError(f"{path}: node {rows[at] + 1} has neighbour {ends[at] + 1}; expected 1 to {header.n}")
    return Edges(rows, ends, weights)
