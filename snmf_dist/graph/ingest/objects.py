"""Graphs of other libraries, known by what they can do: networkx, igraph, rustworkx. None of them is imported."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from snmf_dist.errors import InputError
from snmf_dist.graph.ingest.edges import BATCH, Edges, EdgeSource
from snmf_dist.ids import Ids, ids_of_names
from snmf_dist.untrusted import check_nodes


def from_ends(edges: Edges, n: int, origin: str, *, ids: Ids | None, both: Any) -> EdgeSource:
    """A source of edges in memory.

    Parameters
    ----------
    both : bool, or ndarray of bool
        Whether an edge goes in both directions and stands in `edges` once.
    """
    check_nodes(n, len(edges.rows), origin, given=True)
    turned = np.broadcast_to(both, edges.rows.shape) & (edges.rows != edges.columns)  # a loop is its own mirror

    def batches() -> Iterator[Edges]:
        for start in range(0, len(edges.rows), BATCH):
            some = Edges(*(values[start : start + BATCH] for values in edges))
            again = turned[start : start + BATCH]
            yield some
            yield Edges(some.columns[again], some.rows[again], some.weights[again])

    return EdgeSource(n, len(edges.rows) + int(np.count_nonzero(turned)), batches, {"source": origin}, ids=ids)


def find_object_reader(thing: Any) -> Callable[[Any], EdgeSource] | None:
    """What reads an object as a graph, or None."""
    for abilities, read in READERS.items():
        if all(hasattr(thing, name) for name in abilities):
            return read
    return None


def _from_networkx(graph: Any) -> EdgeSource:
    """Nodes keep their order; an edge without ``weight`` weighs 1."""
    origin, nodes = f"networkx {type(graph).__name__}", list(graph.nodes)
    number = {node: i for i, node in enumerate(nodes)}
    listed = list(graph.edges(data="weight", default=1))
    edges = Edges(
        np.array([number[a] for a, _, _ in listed], dtype=np.int64),
        np.array([number[b] for _, b, _ in listed], dtype=np.int64),
        _numbers([weight for _, _, weight in listed], origin),
    )
    return from_ends(edges, len(nodes), origin, ids=_ids(nodes, origin), both=not graph.is_directed())


def _from_igraph(graph: Any) -> EdgeSource:
    """Ids are the vertex attribute ``name``, weights the edge attribute ``weight``, if they are there."""
    ends = np.array(graph.get_edgelist(), dtype=np.int64).reshape(-1, 2)
    has_weights = "weight" in graph.es.attributes()
    weights = _numbers(graph.es["weight"], "igraph") if has_weights else np.ones(len(ends))
    ids = _ids(graph.vs["name"], "igraph") if "name" in graph.vs.attributes() else None
    edges = Edges(ends[:, 0], ends[:, 1], weights)
    return from_ends(edges, graph.vcount(), "igraph Graph", ids=ids, both=not graph.is_directed())


def _from_rustworkx(graph: Any) -> EdgeSource:
    """Payloads of nodes are ids if they are text or numbers; those of edges weights, or dicts with ``weight``."""
    origin = f"rustworkx {type(graph).__name__}"
    where = {node: i for i, node in enumerate(graph.node_indices())}  # a node that was removed leaves a gap
    listed = graph.weighted_edge_list()
    edges = Edges(
        np.array([where[a] for a, _, _ in listed], dtype=np.int64),
        np.array([where[b] for _, b, _ in listed], dtype=np.int64),
        _numbers([_payload(weight) for _, _, weight in listed], origin),
    )
    names = graph.nodes()
    texts = all(isinstance(name, str) for name in names) or all(isinstance(name, int) for name in names)
    ids = _ids(names, origin) if texts and names else None
    return from_ends(edges, len(names), origin, ids=ids, both=not hasattr(graph, "predecessor_indices"))


READERS: dict[tuple[str, ...], Callable[[Any], EdgeSource]] = {
    ("nodes", "edges", "adj", "is_directed"): _from_networkx,
    ("get_edgelist", "vcount", "vs", "es"): _from_igraph,
    ("weighted_edge_list", "node_indices", "nodes"): _from_rustworkx,
}


def _payload(weight: Any) -> Any:
    if isinstance(weight, dict):
        weight = weight.get("weight")
    return 1.0 if weight is None else weight


def _numbers(values: list[Any], origin: str) -> np.ndarray:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        odd = next(value for value in values if not isinstance(value, int | float | np.number))
        raise InputError(
            f"{origin}: an edge has the weight {odd!r}; expected numbers, or edges without weights"
        ) from None


def _ids(names: list[Any], origin: str) -> Ids | None:
    try:
        return ids_of_names(names, origin)
    except InputError as error:
        raise InputError(f"{error}; relabel the nodes, or give the adjacency matrix") from error
