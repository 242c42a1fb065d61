"""The graphs of AnnData: a sparse matrix in ``obsp``, of a Zarr store, an ``.h5ad`` file, or an object."""

import os
from collections.abc import Iterator
from typing import Any

from snmf_dist import storage
from snmf_dist.annotated_files import (
    SPARSE,
    child,
    choose_key,
    named,
    obs_ids,
    open_annotated,
    row_pointers,
    sparse_shape,
)
from snmf_dist.errors import InputError
from snmf_dist.graph.ingest.edges import Edges, EdgeSource, expand, row_ranges
from snmf_dist.graph.ingest.matrices import from_matrix
from snmf_dist.untrusted import check_nodes


def from_annotated(path: str, key: str | None, options: storage.Options) -> EdgeSource:
    """``obsp[key]`` of the AnnData at `path`; read by rows."""
    with open_annotated(path, options) as group:
        if child(group, "obsp", path) is None:
            raise InputError(f"{path}: has no obsp, so it holds no graph; points are read by build_graph")
        name = f"obsp/{choose_key(group, path, 'obsp', key)}"
        A = child(group, name, path)
        encoding = A.attrs.get("encoding-type")
        if encoding not in SPARSE:
            raise InputError(f"{path}: {name} is {encoding!r}; expected csr_matrix or csc_matrix")
        rows, columns = sparse_shape(A, path, name)
        if rows != columns:
            raise InputError(f"{path}: {name} is {rows} × {columns}; expected a square matrix")
        check_nodes(rows, A["indices"].size, path, given=True)
        indptr = row_pointers(A, path, name, rows)
        ids = obs_ids(group, path, rows)

    def batches() -> Iterator[Edges]:
        with open_annotated(path, options) as group:
            A = child(group, name, path)
            for some in row_ranges(indptr):
                entries = slice(int(indptr[some.start]), int(indptr[some.stop]))
                edges = expand(indptr, some, A["indices"][entries], A["data"][entries])
                yield edges if encoding == "csr_matrix" else Edges(edges.columns, edges.rows, edges.weights)

    origin = f"{os.path.basename(path.rstrip('/'))} {name}"
    return EdgeSource(rows, int(indptr[-1]), batches, {"source": origin}, ids=ids)


def is_annotated(thing: Any) -> bool:
    """Tell whether an object looks like an AnnData."""
    return all(hasattr(thing, name) for name in ("obsp", "obs_names", "obsm"))


def from_anndata_object(adata: Any, key: str | None) -> EdgeSource:
    """``obsp[key]`` of an AnnData in memory."""
    keys = sorted(adata.obsp.keys())
    if key is None and len(keys) == 1:
        key = keys[0]
    if key not in keys:
        asked = f"no obsp/{key}" if key else "more than one graph, or none"
        raise InputError(f"AnnData: {asked}; obsp has {keys}: pass key= with one of them")
    origin = f"AnnData obsp/{key}"
    return from_matrix(adata.obsp[key], origin, named(adata.obs_names, "AnnData obs"))
