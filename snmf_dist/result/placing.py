"""Labels of rows that were not in the graph when it was clustered: new points, and new nodes by their edges."""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from snmf_dist import storage
from snmf_dist.engine.machine import one_blas_thread
from snmf_dist.errors import InputError, StoreCorrupt
from snmf_dist.graph.build.lookup import Near, near_blocks
from snmf_dist.graph.store import GraphStore, open_graph
from snmf_dist.result.foldin import fold_in, gram_of, products, strengths, take_rows
from snmf_dist.solve.kernels import row_labels
from snmf_dist.validation import whole_number

EDGE_ROWS = 1 << 14  # new nodes in a block


class Placed(NamedTuple):
    """Where new rows belong.

    Attributes
    ----------
    labels : ndarray of int32, shape (m,)
        Cluster of each new row; −1 if none touches it.
    strength : ndarray, shape (m,)
        Share of that cluster in the row's membership.
    novel : ndarray of bool, shape (m,)
        Whether the row is far from all that it should be near: its label says little.
    membership : ndarray, shape (m, K)
        The new rows of L.
    """

    labels: np.ndarray
    strength: np.ndarray
    novel: np.ndarray
    membership: np.ndarray


def place(
    membership: Any,
    facts: Any,
    new: Any,
    *,
    points: Any = None,
    graph: GraphStore | str | os.PathLike[str] | None = None,
    block_rows: int | None = None,
    options: storage.Options = None,
) -> Iterator[Placed]:
    """Place new rows, a block at a time; the parameters are those of `Solution.predict`.

    Parameters
    ----------
    membership : array, shape (n, K)
        L of the known rows.
    facts : mapping
        The provenance of the solution, which names its graph.
    """
    if block_rows is not None:
        whole_number("block_rows", block_rows, 1)
    store = graph_of(facts, options, graph)
    edges = sparse.issparse(new) and new.shape[1] == store.n and "search" not in store.block
    near = (
        _edge_blocks(new, block_rows or EDGE_ROWS)
        if edges
        else near_blocks(store, new, points=points, block_rows=block_rows, options=options)
    )
    degree = np.empty(store.n)
    degree[store.order] = store.degree
    with one_blas_thread():
        gram = gram_of(membership)
    for block in near:
        yield _placed(membership, gram, block, degree, store)


def graph_of(
    facts: Any, options: storage.Options = None, graph: GraphStore | str | os.PathLike[str] | None = None
) -> GraphStore:
    """The graph that a result was found on: where it was then, or the one given."""
    place = facts["graph"] if graph is None else graph
    store = place if isinstance(place, GraphStore) else open_graph(place, storage_options=options)
    if store.fingerprint != facts["fingerprint"]:
        raise StoreCorrupt(
            f"{store.path}: is not the graph that this result was found on; restore that one, or fit again"
        )
    return store


def _edge_blocks(new: Any, rows: int) -> Iterator[Near]:
    """Rows of a sparse (m, n) matrix: weights of the edges of new nodes to known rows."""
    edges = sparse.csr_matrix(new)
    edges.sum_duplicates()
    if not np.isfinite(edges.data).all() or (edges.data < 0).any():
        raise InputError("the edges of the new nodes have weights that are negative or not finite")
    for start in range(0, edges.shape[0], rows):
        part = edges[start : start + rows]
        counts = np.diff(part.indptr)
        cells = np.repeat(np.arange(part.shape[0]), counts), np.concatenate([np.arange(c) for c in counts])
        width = int(counts.max(initial=1))
        columns, weights = np.full((part.shape[0], width), -1), np.zeros((part.shape[0], width))
        columns[cells], weights[cells] = part.indices, part.data
        yield Near(columns, weights, np.full(part.shape[0], -1), counts == 0)


def _placed(membership: Any, gram: np.ndarray, near: Near, degree: np.ndarray, store: GraphStore) -> Placed:
    """a_j = w_j / √(d_new d_j), then the fold-in; copies of known rows get the rows of those."""
    a = near.weights
    if store.normalize == "ncut":
        own = np.cumsum(near.weights, axis=1)[:, -1] + store.tau  # one after the other, whatever the block
        scale = np.sqrt(own[:, None] * (degree[np.maximum(near.rows, 0)] + store.tau))
        a = np.divide(near.weights, scale, out=np.zeros_like(scale), where=scale > 0)
    L = fold_in(products(a, near.rows, membership), gram)
    copies = np.flatnonzero(near.copy_of >= 0)
    if len(copies):
        L[copies] = take_rows(membership, near.copy_of[copies])
    labels = row_labels(L.astype(membership.dtype)).ravel().astype(np.int32)
    return Placed(labels, strengths(L), near.novel | (labels < 0), L)


def gather(blocks: Iterator[Placed]) -> Placed:
    """All blocks as one."""
    return Placed(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))
