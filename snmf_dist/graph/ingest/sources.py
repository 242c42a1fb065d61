"""Where an imported graph comes from: every kind of source becomes batches of edges.

An `EdgeSource` is read in batches of bounded size. Matrices, Matrix Market, GraphML and objects are in memory and
only sliced; edge lists, METIS, AnnData and graph stores never are in memory as a whole.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist import storage
from snmf_dist.errors import InputError, NotOurStore, StoreNotFound
from snmf_dist.graph.ingest.edgefiles import is_edge_file
from snmf_dist.graph.ingest.edgelists import EdgeFiles, EdgeFrame, from_edge_list, is_frame
from snmf_dist.graph.ingest.edges import Edges, EdgeSource, IdRules
from snmf_dist.graph.ingest.graphml import from_graphml, is_graphml
from snmf_dist.graph.ingest.matrices import from_matrix, from_matrix_market, from_npz
from snmf_dist.graph.ingest.metis import from_metis, is_metis
from snmf_dist.graph.ingest.objects import find_object_reader
from snmf_dist.graph.ingest.parts import find_parts
from snmf_dist.graph.ingest.sparsegroups import from_anndata_object, from_annotated, is_annotated
from snmf_dist.graph.store import GRAPH, GraphStore, open_graph
from snmf_dist.hdf5 import is_hdf5

GRAPH_FILES = ".csv, .tsv, .txt, .edges, .parquet, .arrow, .npz, .mtx, .graph (METIS), .graphml, .h5ad"


def open_source(
    source: Any,
    *,
    key: str | None = None,
    columns: Sequence[str] | None = None,
    rules: IdRules,
    options: storage.Options = None,
) -> EdgeSource:
    """Look at `source` and return it as batches of edges; see `import_graph` for what it may be."""
    if isinstance(source, str | os.PathLike):
        found = _open_path(storage.normal_path(source), key, columns, rules, options)
    else:
        found = _open_object(source, key, columns, rules)
    return replace(found, ids=None) if rules.kind == "rows" and found.store is None else found


def _open_object(source: Any, key: str | None, columns: Sequence[str] | None, rules: IdRules) -> EdgeSource:
    if isinstance(source, GraphStore):
        return _from_store(source)
    if sparse.issparse(source) or isinstance(source, np.ndarray):
        return from_matrix(source, f"a {type(source).__name__} in memory")
    if is_annotated(source):
        return from_anndata_object(source, key)
    if is_frame(source):
        return from_edge_list(EdgeFrame(source, columns), rules)
    read = find_object_reader(source)
    if read is None:
        raise InputError(
            f"source is a {type(source).__name__}; expected a SciPy sparse matrix, a NumPy array, a graph of "
            "networkx, igraph or rustworkx, a table of pandas, polars or "
            "pyarrow, an AnnData, a graph store or a path"
        )
    return read(source)


def _open_path(
    path: str, key: str | None, columns: Sequence[str] | None, rules: IdRules, options: storage.Options
) -> EdgeSource:
    parts = find_parts(path, options)
    if parts is not None:
        return from_edge_list(EdgeFiles(parts, path, columns, options), rules)
    if not storage.is_url(path) and not os.path.exists(path):
        raise StoreNotFound(f"{path}: no such file or directory; check the path")
    if path.lower().endswith(".npz"):
        return from_npz(path)
    if path.lower().endswith((".mtx", ".mtx.gz", ".mtx.bz2")):
        return from_matrix_market(path)
    if is_graphml(path):
        return from_graphml(path, options, rules.memory)
    if is_metis(path):
        return from_metis(path, options)
    if is_edge_file(path):
        return from_edge_list(EdgeFiles([path], path, columns, options), rules)
    if is_hdf5(path):
        return from_annotated(path, key, options)
    if not storage.is_url(path) and not os.path.isdir(path):
        raise InputError(
            f"{path}: unknown kind of file; expected {GRAPH_FILES}, a graph store or an AnnData Zarr store"
        )
    group = storage.open_group(path, options)
    if storage.kind_of(group) == GRAPH:
        return _from_store(open_graph(path, storage_options=options))
    if "obsp" in group:
        return from_annotated(path, key, options)
    raise NotOurStore(f"{path}: neither a graph store nor an AnnData store with obsp")


def _from_store(store: GraphStore) -> EdgeSource:
    def batches() -> Iterator[Edges]:
        for i in range(store.n_blocks):
            A = store.read_block(i)
            rows = np.repeat(np.arange(store.bounds[i], store.bounds[i + 1]), np.diff(A.indptr))
            yield Edges(rows, A.indices.astype(np.int64), A.data.astype(np.float64))

    return EdgeSource(store.n, store.nnz, batches, dict(store.block["made"]), store, store.ids)
