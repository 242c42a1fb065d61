"""A clustered graph as GEXF or GraphML, written as it is read: nodes, then the edges, one row block at a time."""

import re
from collections.abc import Iterable, Iterator
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from snmf_dist.errors import InputError
from snmf_dist.graph.store import GraphStore, edges_above
from snmf_dist.result.foldin import second_labels, strengths
from snmf_dist.result.tables import blocks, row_ids

NODE_FIELDS = {"label": "int", "strength": "double", "second": "int"}
GEXF_TYPES = {"int": "integer"}
NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # section 2.2 of XML 1.0


def write_network(path: str, solution: Any, graph: GraphStore) -> None:
    """Write nodes with id, cluster, strength and second cluster, and the edges of A with their weights."""
    lines = _gexf(solution, graph) if path.endswith(".gexf") else _graphml(solution, graph)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def _nodes(solution: Any) -> Iterator[tuple[int, str, tuple[Any, ...]]]:
    """Number, quoted id and values of `NODE_FIELDS` of each row."""
    for start, L in blocks(solution):
        stop = start + len(L)
        values = zip(
            solution.labels[start:stop].tolist(), strengths(L).tolist(), second_labels(L).tolist(), strict=True
        )
        for i, (name, value) in enumerate(zip(row_ids(solution, start, stop), values, strict=True), start):
            if NOT_XML.search(str(name)):
                raise InputError(
                    f"the id of row {i}, {name!r}, has a character that XML cannot hold; export .csv or .parquet"
                )
            yield i, quoteattr(str(name)), value


def _edges(graph: GraphStore) -> Iterable[tuple[int, int, float]]:
    """Each edge once, between rows of the input."""
    order = graph.order
    for i in range(graph.n_blocks):
        A = graph.read_block(i)
        rows, columns = edges_above(A.indptr, A.indices, first_row=int(graph.bounds[i]))
        where = np.repeat(np.arange(graph.bounds[i], graph.bounds[i + 1]), np.diff(A.indptr)) < A.indices
        yield from zip(order[rows].tolist(), order[columns].tolist(), A.data[where].tolist(), strict=True)


def _gexf(solution: Any, graph: GraphStore) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield '<gexf xmlns="http://www.gexf.net/1.2draft" version="1.2">'
    yield '<graph defaultedgetype="undirected"><attributes class="node">'
    for name, kind in NODE_FIELDS.items():
        yield f'<attribute id="{name}" title="cluster_{name}" type="{GEXF_TYPES.get(kind, kind)}"/>'
    yield "</attributes><nodes>"
    for i, name, values in _nodes(solution):
        pairs = zip(NODE_FIELDS, values, strict=True)
        inner = "".join(f'<attvalue for="{field}" value="{value}"/>' for field, value in pairs)
        yield f'<node id="{i}" label={name}><attvalues>{inner}</attvalues></node>'
    yield "</nodes><edges>"
    for number, (one, two, weight) in enumerate(_edges(graph)):
        yield f'<edge id="{number}" source="{one}" target="{two}" weight="{weight!r}"/>'
    yield "</edges></graph></gexf>"


def _graphml(solution: Any, graph: GraphStore) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    yield '<key id="id" for="node" attr.name="name" attr.type="string"/>'
    for name, kind in NODE_FIELDS.items():
        yield f'<key id="{name}" for="node" attr.name="cluster_{name}" attr.type="{kind}"/>'
    yield '<key id="weight" for="edge" attr.name="weight" attr.type="double"/><graph edgedefault="undirected">'
    for i, name, values in _nodes(solution):
        inner = "".join(
            f'<data key="{field}">{value}</data>' for field, value in zip(NODE_FIELDS, values, strict=True)
        )
        yield f'<node id="n{i}"><data key="id">{_text(name)}</data>{inner}</node>'
    for one, two, weight in _edges(graph):
        yield f'<edge source="n{one}" target="n{two}"><data key="weight">{weight!r}</data></edge>'
    yield "</graph></graphml>"


def _text(quoted: str) -> str:
    """The text of an element from a quoted attribute, whose & and < are escaped already."""
    return quoted[1:-1]
