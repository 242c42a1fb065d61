"""A result in AnnData's Zarr encoding: ``obs["snmf"]``, ``obsm["X_snmf"]``, ``uns["snmf"]``.

Written with zarr alone, into an AnnData store that is there, of which nothing else is read or changed, or into a
new one that holds nothing but the result.
"""

import json
import os
import warnings
from typing import Any

import numpy as np
import zarr

from snmf_dist.errors import InputError, NotOurStore
from snmf_dist.result.foldin import second_labels, strengths
from snmf_dist.result.tables import block_rows, blocks, row_ids
from snmf_dist.untrusted import refuse_code

ARRAY = {"encoding-type": "array", "encoding-version": "0.2.0"}
STRINGS = {"encoding-type": "string-array", "encoding-version": "0.2.0"}
MAPPING = {"encoding-type": "dict", "encoding-version": "0.1.0"}
NAMES_AT_ONCE = 1 << 14  # names in memory at a time
EMPTY = ("layers", "obsm", "obsp", "uns", "varm", "varp")


def write_annotated(path: str, solution: Any) -> None:
    """Write the result into the AnnData store at `path`; make one if nothing is there."""
    store = _open(path, solution) if os.path.exists(path) else _create(path, solution)
    obs: Any = store["obs"]
    _categories(obs, solution)
    memberships(store, obs, solution)
    columns = [*obs.attrs["column-order"]]
    obs.attrs["column-order"] = [
        *columns,
        *(c for c in ("snmf", "snmf_strength", "snmf_second") if c not in columns),
    ]
    uns = store.require_group("uns")
    uns.attrs.update(MAPPING)
    facts = uns.create_group("snmf", overwrite=True)
    facts.attrs.update(MAPPING)
    for name, value in {
        "status": solution.status.name,
        "settings": json.dumps(dict(solution.settings), default=str),
        "provenance": json.dumps(dict(solution.provenance), default=str),
    }.items():
        _strings(facts, name, shape=())[...] = np.array(value, dtype=object)
    if zarr.open_group(path, mode="r").metadata.consolidated_metadata is not None:  # a copy of it, now outdated
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr warns that the copy is not in the written standard yet
            zarr.consolidate_metadata(store.store)


def memberships(store: zarr.Group, obs: zarr.Group, solution: Any) -> None:
    """Write L, and strength and second label of each row, a block at a time."""
    n, K = solution.membership.shape
    rows = block_rows(n, K)
    obsm = store.require_group("obsm")
    L_out = _array(obsm, "X_snmf", (n, K), (rows, K), solution.membership.dtype)
    strong, second = (
        _array(obs, name, (n,), (rows,), kind) for name, kind in (("snmf_strength", "f8"), ("snmf_second", "i4"))
    )
    for start, L in blocks(solution):
        L_out[start : start + len(L)] = L
        strong[start : start + len(L)] = strengths(L)
        second[start : start + len(L)] = second_labels(L)


def _open(path: str, solution: Any) -> zarr.Group:
    n = len(solution.labels)
    try:
        store = zarr.open_group(path, mode="r+", use_consolidated=False)
        obs: Any = store["obs"]
        index = obs[obs.attrs["_index"]]
        rows = index.shape[0]
    except Exception as error:  # not Zarr, not AnnData, or torn: zarr raises many kinds
        raise NotOurStore(
            f"{path}: is not an AnnData store ({type(error).__name__}); choose another path, or a store written "
            "by AnnData.write_zarr"
        ) from error
    if rows != n:
        raise InputError(f"{path}: has {rows} observations, but the result has {n} rows; expected the same")
    if solution.ids is not None:
        _check_order(path, index, solution.ids)
    return store


def _check_order(path: str, index: Any, ids: Any) -> None:
    """Refuse a store that has the same names in another order; names of another kind say nothing."""
    for start in range(0, len(ids), NAMES_AT_ONCE):
        ours = [str(name) for name in ids[start : start + NAMES_AT_ONCE]]
        theirs = [str(name) for name in refuse_code(index, path)[start : start + NAMES_AT_ONCE]]
        odd = next((i for i, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other), None)
        if odd is None:
            continue
        if ours[odd] in set(map(str, index[:])):
            raise InputError(
                f"{path}: observation {start + odd} is {theirs[odd]!r}, but row {start + odd} of the result is "
                f"{ours[odd]!r}; expected the same order: write the store again in the order of the result"
            )
        return


def _create(path: str, solution: Any) -> zarr.Group:
    root: Any = {"encoding-type": "anndata", "encoding-version": "0.1.0"}
    store = zarr.open_group(path, mode="w-", zarr_format=2, attributes=root)
    for name, count in (("obs", len(solution.labels)), ("var", 0)):
        frame = store.create_group(name)
        frame.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
        frame.attrs["column-order"] = []
        names = _strings(frame, "_index", shape=(count,))
        for start in range(0, count, NAMES_AT_ONCE):
            some = row_ids(solution, start, min(start + NAMES_AT_ONCE, count))
            names[start : start + len(some)] = np.array([str(one) for one in some], dtype=object)
    for name in EMPTY:
        store.create_group(name).attrs.update(MAPPING)
    return store


def _categories(obs: zarr.Group, solution: Any) -> None:
    """``obs["snmf"]``: the label as a category, empty where it is −1."""
    column = obs.create_group("snmf", overwrite=True)
    column.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
    codes = _array(column, "codes", solution.labels.shape, (min(len(solution.labels), 1 << 20),), "i4")
    codes[:] = solution.labels
    names = np.array([str(k) for k in range(solution.k)], dtype=object)
    _strings(column, "categories", shape=names.shape)[:] = names


def _array(group: zarr.Group, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: Any) -> Any:
    return group.create_array(
        name, shape=shape, chunks=chunks, dtype=dtype, attributes=dict(ARRAY), overwrite=True
    )


def _strings(group: zarr.Group, name: str, *, shape: tuple[int, ...]) -> Any:
    """A new array of text."""
    attributes = STRINGS if shape else {"encoding-type": "string", "encoding-version": "0.2.0"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns that text of any length is not in the written standard yet
        return group.create_array(
            name,
            shape=shape,
            chunks=tuple(max(min(size, NAMES_AT_ONCE), 1) for size in shape),
            dtype=str,
            attributes=dict(attributes),
            overwrite=True,
        )
