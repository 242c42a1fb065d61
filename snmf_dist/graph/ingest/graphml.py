"""GraphML files, read as they come: nodes, edges, and what keys named ``weight`` and ``name`` say of them.

A file with a document type is refused: it may define entities, which can grow without end or name other files.
"""

import os
from array import array
from typing import Any
from xml.parsers import expat

import fsspec
import numpy as np

from snmf_dist import storage
from snmf_dist.errors import DoesNotFit, InputError, SnmfError
from snmf_dist.graph.ingest.edges import Edges, EdgeSource
from snmf_dist.graph.ingest.objects import from_ends
from snmf_dist.ids import Ids, ids_of_names

GRAPHML_SUFFIX = ".graphml"
NODE_COST, EDGE_COST = 400, 40  # bytes of memory while a file is read
READ_BYTES = 1 << 20


def is_graphml(path: str) -> bool:
    """Tell by its name whether `path` is GraphML."""
    return path.lower().removesuffix(".gz").endswith(GRAPHML_SUFFIX)


def from_graphml(path: str, options: storage.Options, memory: int) -> EdgeSource:
    """A GraphML file; nodes are held in memory, with the ends and weights of edges."""
    reader = _Reader(path, memory)
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    try:
        with fsspec.open(path, "rb", compression="infer", **(storage.plain(options) or {})) as file:
            while piece := file.read(READ_BYTES):
                parser.Parse(piece)
                reader.check_memory()
            parser.Parse(b"", True)
    except SnmfError:
        raise
    except (expat.ExpatError, OSError, EOFError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as GraphML ({error})") from error
    return reader.source()


class _Reader:
    """Collects nodes and edges from the events of the parser."""

    def __init__(self, path: str, memory: int) -> None:
        self.path, self.memory = path, memory
        self.numbers: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.rows, self.columns, self.weights = array("q"), array("q"), array("d")
        self.both = bytearray()  # whether the edge goes in both directions
        self.weight_keys: dict[str, float] = {}
        self.name_key: str | None = None
        self.directed = False
        self._inside: list[str] = []
        self._key, self._words = "", ""

    def refuse(self, *declared: Any) -> None:
        """A document type is no part of GraphML."""
        raise InputError(f"{self.path}: declares a document type, which may hide entities; take it out")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        tag = tag.rpartition("}")[2]
        self._inside.append(tag)
        if tag == "node":
            self._number(attributes.get("id"))
        elif tag == "edge":
            self._edge(attributes)
        elif tag == "graph":
            self.directed = attributes.get("edgedefault") == "directed"
        elif tag == "hyperedge":
            raise InputError(f"{self.path}: has hyperedges; expected edges between two nodes")
        elif tag == "key":
            self._declare(attributes)
        if tag in ("data", "default"):
            self._key, self._words = attributes.get("key", self._key), ""

    def text(self, words: str) -> None:
        """Text of the element."""
        if self._inside and self._inside[-1] in ("data", "default"):
            self._words += words

    def end(self, tag: str) -> None:
        """An element ends."""
        tag = self._inside.pop()
        parent = self._inside[-1] if self._inside else ""
        if tag == "default" and self._key in self.weight_keys:
            self.weight_keys[self._key] = self._weight()
        elif tag == "data" and parent == "edge" and self._key in self.weight_keys:
            self.weights[-1] = self._weight()
        elif tag == "data" and parent == "node" and self._key == self.name_key:
            self.names[len(self.numbers) - 1] = self._words

    def _declare(self, attributes: dict[str, str]) -> None:
        self._key = attributes.get("id", "")
        scope, name = attributes.get("for", "all"), attributes.get("attr.name", "").lower()
        if name == "weight" and scope in ("edge", "all"):
            self.weight_keys[self._key] = 1.0
        if name == "name" and scope in ("node", "all"):
            self.name_key = self._key

    def _number(self, name: str | None) -> int:
        if name is None:
            raise InputError(f"{self.path}: a node or an end of an edge has no id; expected one for each")
        return self.numbers.setdefault(name, len(self.numbers))

    def _edge(self, attributes: dict[str, str]) -> None:
        ends = [attributes.get(name) for name in ("source", "target")]
        unknown = [name for name in ends if name not in self.numbers]
        if unknown:
            raise InputError(
                f"{self.path}: an edge has the end {unknown[0]!r}; expected a node that stands above it"
            )
        self.rows.append(self._number(ends[0]))
        self.columns.append(self._number(ends[1]))
        self.weights.append(min(self.weight_keys.values(), default=1.0))
        directed = attributes.get("directed")
        self.both.append(not self.directed if directed is None else directed != "true")

    def _weight(self) -> float:
        try:
            return float(self._words)
        except ValueError:
            raise InputError(
                f"{self.path}: edge {len(self.rows)} has the weight {self._words[:40]!r}; expected a number"
            ) from None

    def check_memory(self) -> None:
        """Refuse a file that does not fit."""
        if NODE_COST * len(self.numbers) + EDGE_COST * len(self.rows) > self.memory:
            raise DoesNotFit(
                f"{self.path}: its nodes and edges take more than {self.memory / 1e9:.2f} GB; raise memory_limit, "
                "or write an edge list, which is read in pieces"
            )

    def _ids(self) -> Ids | None:
        """Names if each node has one of its own, else ids of nodes, unless those only count."""
        n = len(self.numbers)
        if len(self.names) == n and len(set(self.names.values())) == n:
            return ids_of_names([self.names[i] for i in range(n)], self.path)
        ids = list(self.numbers)
        return None if ids == [f"n{i}" for i in range(n)] else ids_of_names(ids, self.path)

    def source(self) -> EdgeSource:
        """What was collected."""
        edges = Edges(
            np.frombuffer(self.rows, dtype=np.int64),
            np.frombuffer(self.columns, dtype=np.int64),
            np.frombuffer(self.weights, dtype=np.float64),
        )
        both = np.frombuffer(self.both, dtype=bool)
        return from_ends(edges, len(self.numbers), os.path.basename(self.path), ids=self._ids(), both=both)
