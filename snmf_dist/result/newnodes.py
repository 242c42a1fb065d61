"""Edges from new nodes to known ones, in a file or table, as the sparse matrix that `Solution.place` takes."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from snmf_dist import storage
from snmf_dist.errors import InputError
from snmf_dist.graph.ingest.edgefiles import is_edge_file
from snmf_dist.graph.ingest.edgelists import EdgeFiles, EdgeFrame, EdgeList, is_frame
from snmf_dist.graph.ingest.parts import find_parts
from snmf_dist.ids import Ids


class NewNodes(NamedTuple):
    """New nodes and their edges.

    Attributes
    ----------
    names : ndarray, shape (m,)
        Ids of the new nodes, each once, in the order in which they come first.
    edges : scipy.sparse.csr_matrix, shape (m, n)
        Weights of their edges to the n known rows, in the order of the input.
    """

    names: np.ndarray
    edges: sparse.csr_matrix


def read_new_nodes(
    source: Any,
    known: Ids | None,
    n: int,
    *,
    columns: Sequence[str] | None = None,
    first_id: int = 0,
    options: storage.Options = None,
) -> NewNodes:
    """Read edges whose source is a new node and whose target a known one; see `Solution.new_nodes`."""
    import pyarrow as pa

    listed = _open(source, columns, options)
    text = (known is not None and known.kind == "text") or listed.has_text()
    parts = list(listed.read(text=text))
    if not parts:
        raise InputError(f"{listed.origin}: holds no edges; expected a new node, a known one and a weight each")
    new, old, weights = zip(*parts, strict=True)
    both = [pa.concat_arrays(ends) if text else pa.array(np.concatenate(ends)) for ends in (new, old)]
    rows = _known_rows(both[1], known, n, first_id, listed.origin)
    encoded = both[0].dictionary_encode()
    names = np.array(encoded.dictionary.to_pylist(), dtype=object if text else np.int64)
    entries = (np.concatenate(weights), (np.asarray(encoded.indices), rows))
    return NewNodes(names, sparse.csr_matrix(entries, shape=(len(names), n)))


def is_edge_source(path: str) -> bool:
    """Tell whether `path` is an edge list, or a folder or pattern of them."""
    return is_edge_file(path) or find_parts(path) is not None


def _open(source: Any, columns: Sequence[str] | None, options: storage.Options) -> EdgeList:
    if is_frame(source):
        return EdgeFrame(source, columns)
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"the edges are a {type(source).__name__}; expected the path of an edge list, or a table of pandas, "
            "polars or pyarrow"
        )
    path = storage.normal_path(source)
    parts = find_parts(path, options)
    if parts is None and not is_edge_file(path):
        raise InputError(f"{path}: is no edge list by its name; expected .csv, .tsv, .txt, .parquet or .arrow")
    return EdgeFiles(parts or [path], path, columns, options)


def _known_rows(ends: Any, known: Ids | None, n: int, first_id: int, origin: str) -> np.ndarray:
    """The rows of known nodes."""
    import pyarrow as pa

    if known is not None and known.kind == "text":
        rows = known.find(ends)
    else:
        try:
            numbers = ends.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(f"{origin}: the ids of the graph are whole numbers, but {error}") from error
        rows = known.find(numbers) if known is not None else np.asarray(numbers) - first_id
    unknown = (rows < 0) | (rows >= n)
    if unknown.any():
        raise InputError(
            f"{origin}: {ends[int(unknown.argmax())].as_py()!r} is not among the ids of the graph; expected edges "
            f"from new nodes (first column) to known ones (second), and {int(unknown.sum())} end elsewhere"
        )
    return rows
