"""Edge lists, in files or in tables of this process, to edges between row numbers."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol

from snmf_dist import storage
from snmf_dist.arrowfiles import is_text
from snmf_dist.errors import InputError
from snmf_dist.graph.ingest.edgefiles import EdgeTable, has_text_ids, read_edges
from snmf_dist.graph.ingest.edges import Edges, EdgeSource, IdRules
from snmf_dist.graph.ingest.numbering import Renumbering
from snmf_dist.graph.ingest.textlines import choose_columns
from snmf_dist.untrusted import are_sparse, check_nodes


class EdgeList(Protocol):
    """Edges between ids, read more than once."""

    origin: str

    def has_text(self) -> bool:
        """Whether ids are text."""

    def read(self, *, text: bool) -> Iterator[Edges]:
        """The edges in batches, ids as text or as whole numbers."""


class EdgeFiles:
    """One file, or several that are parts of one list."""

    def __init__(
        self, paths: list[str], origin: str, columns: Sequence[str] | None, options: storage.Options
    ) -> None:
        self.paths, self.origin = paths, origin
        self._how: dict[str, Any] = {"columns": columns, "options": storage.plain(options)}

    def apart(self) -> list["EdgeFiles"]:
        """Each file by itself."""
        return [EdgeFiles([path], self.origin, **self._how) for path in self.paths]

    def has_text(self) -> bool:
        """Whether ids are text in any of the files."""
        return any(has_text_ids(path, **self._how) for path in self.paths)

    def read(self, *, text: bool) -> Iterator[Edges]:
        """The edges of all files."""
        for path in self.paths:
            yield from read_edges(path, **self._how, text=text)


class EdgeFrame:
    """A table of pandas, polars, pyarrow, or whatever else speaks Arrow's C interface."""

    def __init__(self, frame: Any, columns: Sequence[str] | None) -> None:
        import pyarrow as pa

        self.origin = f"a {type(frame).__module__.split('.')[0]} {type(frame).__name__}"
        try:
            table = frame if isinstance(frame, pa.Table) else pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"{self.origin}: cannot be read as a table of edges ({error})") from error
        self._table = table.select(list(choose_columns(table.schema.names, columns, self.origin)))

    def has_text(self) -> bool:
        """Whether ids are text."""
        return any(is_text(field.type) for field in list(self._table.schema)[:2])

    def read(self, *, text: bool) -> Iterator[Edges]:
        """The rows of the table."""
        yield from EdgeTable(self._table, self.origin).read(text=text)


def is_frame(thing: Any) -> bool:
    """Tell whether an object is a table that can be read through Arrow."""
    return hasattr(thing, "__arrow_c_stream__")


def from_edge_list(edges: EdgeList, rules: IdRules) -> EdgeSource:
    """Edges between ids as edges between row numbers, as `rules` say."""
    made = {"source": os.path.basename(edges.origin.rstrip("/"))}
    if rules.kind == "text" or (rules.kind == "auto" and edges.has_text()):
        return _renumbered(edges, rules, made, text=True)
    if rules.kind == "numbers":
        return _renumbered(edges, rules, made, text=False)
    n_edges, low, high = 0, rules.first_id, rules.first_id - 1
    for some in edges.read(text=False):
        n_edges += len(some.rows)
        low = min(low, some.rows.min(initial=low), some.columns.min(initial=low))
        high = max(high, some.rows.max(initial=high), some.columns.max(initial=high))
    found = int(high) - rules.first_id + 1
    free = rules.kind == "auto" and rules.n is None and rules.first_id == 0
    if free and (low < 0 or are_sparse(found, n_edges)):
        return _renumbered(edges, rules, made, text=False)
    if low < rules.first_id:
        raise InputError(f"{edges.origin}: has node id {low}; ids start at first_id={rules.first_id}")
    if rules.n is not None and found > rules.n:
        raise InputError(f"{edges.origin}: has node id {high}, but n={rules.n} was given")
    check_nodes(rules.n or found, n_edges, edges.origin, given=rules.n is not None)
    parts: Sequence[EdgeList] = [edges]
    if isinstance(edges, EdgeFiles):
        parts = edges.apart()
    pieces = tuple(partial(_by_row, part, rules.first_id) for part in parts)
    return EdgeSource(
        rules.n or found, n_edges, lambda: chain.from_iterable(piece() for piece in pieces), made, pieces=pieces
    )


def _by_row(edges: EdgeList, first_id: int) -> Iterator[Edges]:
    """The edges, ids counted from 0."""
    for some in edges.read(text=False):
        yield Edges(some.rows - first_id, some.columns - first_id, some.weights)


def _renumbered(edges: EdgeList, rules: IdRules, made: dict[str, Any], *, text: bool) -> EdgeSource:
    """Edges between ids that are text or sparse numbers, with numbers in their place."""
    import pyarrow as pa

    if rules.n is not None or rules.first_id:
        raise InputError(f"{edges.origin}: ids are numbered by their sorted order; leave n and first_id out")
    numbering = Renumbering(rules.folder, text=text, memory=rules.memory)
    for some in edges.read(text=text):
        rows, others = (ends if text else pa.array(ends) for ends in (some.rows, some.columns))
        numbering.add(rows, others, some.weights, edges.origin)
    ids = numbering.finish()
    check_nodes(len(ids), numbering.n_edges, edges.origin, given=True)
    return EdgeSource(len(ids), numbering.n_edges, numbering.batches, made, ids=ids)
