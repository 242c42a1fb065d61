"""import_graph(): a graph from elsewhere to a graph store, block by block."""

import inspect
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from snmf_dist import storage
from snmf_dist.engine import machine
from snmf_dist.engine.client import check_workers, current_client
from snmf_dist.errors import GraphWarning, InputError
from snmf_dist.graph.ingest.buckets import EdgeBuckets
from snmf_dist.graph.ingest.edges import EdgeSource, IdRules
from snmf_dist.graph.ingest.filing import Filing
from snmf_dist.graph.ingest.order import GraphPattern, choose_order, rank_of
from snmf_dist.graph.ingest.regularize import choose_tau
from snmf_dist.graph.ingest.sources import open_source
from snmf_dist.graph.store import (
    GRAPH,
    GraphStore,
    GraphWriter,
    StageProgress,
    edges_above,
    find_components,
    open_graph,
    row_bounds,
    silent,
)
from snmf_dist.ids import make_ids
from snmf_dist.locks import only_writer
from snmf_dist.validation import choice, positive_number, whole_number

OWN = 250e6  # bytes of the process itself, with its libraries
LARGEST = 1e140  # sum of all weights: start and modularity square it


def import_graph(
    source: Any,
    out: str | os.PathLike[str],
    *,
    normalize: str | None = "ncut",
    block_rows: int | None = None,
    symmetrize: str | None = None,
    self_loops: str = "auto",
    tau: float | str = "auto",
    dtype: str = "float32",
    reorder: str | bool = "auto",
    key: str | None = None,
    columns: Sequence[str] | None = None,
    n: int | None = None,
    first_id: int = 0,
    ids: Any = "auto",
    memory_limit: int | str | None = None,
    overwrite: bool = False,
    storage_options: storage.Options = None,
    progress: StageProgress | None = None,
) -> GraphStore:
    """Write a similarity graph from elsewhere as a graph store.

    Edges go through files beside `out` (about 16 bytes each, 32 with weights, and up to as much again for W), so
    an edge list may be larger than memory. Runs on the current `distributed.Client` if `out` is a local path and
    has several blocks, or on threads.

    Parameters
    ----------
    source : str, path-like, SciPy sparse matrix or array, ndarray, graph, table, AnnData or GraphStore
        The (n, n) similarities. A path may be an edge list (``.csv``, ``.tsv``, ``.txt``, ``.edges``,
        ``.parquet``, ``.arrow``; compressed or not), a folder or a pattern of such files, METIS ``.graph``,
        ``.graphml``, a SciPy ``.npz`` (or one with arrays ``src`` and ``dst``), Matrix Market ``.mtx``, AnnData
        (``.h5ad`` or Zarr), or a graph store (to re-block it). A graph may be one of networkx, igraph or
        rustworkx; a table, of edges, one of pandas, polars or pyarrow.
    out : str or path-like
        Where to write: a local path or a URL.
    normalize : {"ncut", None}, default "ncut"
        "ncut" stores A = D^-1/2 W D^-1/2, the paper's choice; None stores W as it is.
    block_rows : int, optional
        Number of rows of a block. By default a block has about two million entries.
    symmetrize : {None, "max", "mean"}, default None
        How W is made symmetric. None refuses a W that is not; "max" keeps an edge listed in either direction
        (right for undirected edge lists that hold each edge once); "mean" averages W and its transpose.
    self_loops : {"auto", "keep", "drop"}, default "auto"
        What to do with the diagonal. "auto" drops it for ``normalize="ncut"``, where a loop says nothing of which
        nodes belong together but makes a cluster of a node that has no other edge, and keeps it otherwise.
        ``info()`` shows how many were dropped.
    tau : float or "auto", default "auto"
        Added to each degree in "ncut": A = (D + τI)^-1/2 W (D + τI)^-1/2. Without it a sparse graph of uneven
        degrees falls into one giant cluster and many of a few nodes that hang from it by an edge. "auto" takes a
        quarter of the mean degree if more than one node in twenty has less than that, else 0. 0 is the paper's A.
    dtype : {"float32", "float64"}, default "float32"
        Type of the stored entries, and of the solver's arrays.
    reorder : {"auto", False}, default "auto"
        "auto" looks for an order of the rows that keeps neighbours together, which makes products with A
        faster and couples the blocks less, and takes it if it is clearly better than the order as it came;
        ``info()`` shows what was measured. Results come back in the order of the source either way. False
        leaves the rows as they came.
    key : str, optional
        Name of the ``obsp`` matrix of AnnData; not needed if there is only one.
    columns : sequence of str, optional
        Names of the columns with source, target and weight in an edge list.
    n : int, optional
        Number of nodes of an edge list; by default the largest id decides.
    first_id : int, default 0
        The smallest node id of an edge list: 1 for lists that count from one.
    ids : {"auto", "rows", "numbers", "text"}, or sequence of str or int, default "auto"
        What the node ids of an edge list are. "rows": row numbers, counted from `first_id`. "numbers": whole
        numbers with gaps. "text": any text, kept exactly. The last two kinds are sorted and numbered, stored with
        the graph (``graph.ids``) and carried into results (``solution.ids``). "auto" decides by the first
        lines of a text file, or the schema of a Parquet file: "text" if an id is no whole number or begins with 0,
        "numbers" if ids are below 0 or reach a hundred times the number of edges, else "rows". Graphs of other
        libraries and AnnData have names of their own, which "rows" leaves out. A sequence names the rows of a
        source that has row numbers: one id for each.
    memory_limit : int or str, optional
        Bytes a process may use, as ``"1GiB"``; by default half of this machine's memory. It decides how many
        blocks are worked on at a time, and which orders of the rows are tried.
    overwrite : bool, default False
        Replace the store at `out`. The old one is kept until the new one is complete.
    storage_options : mapping, optional
        Passed to fsspec for URLs.
    progress : callable, optional
        Called as ``progress(stage, done, total)``.

    Returns
    -------
    GraphStore

    Examples
    --------
    >>> import scipy.sparse, snmf_dist, tempfile
    >>> W = scipy.sparse.block_diag([[[0, 1], [1, 0]], [[0, 2], [2, 0]]])
    >>> graph = snmf_dist.import_graph(W, tempfile.mkdtemp() + "/pairs.zarr")
    >>> graph.read_block(0).toarray()
    array([[0., 1., 0., 0.],
           [1., 0., 0., 0.],
           [0., 0., 0., 1.],
           [0., 0., 1., 0.]], dtype=float32)
    """
    choice("normalize", normalize, ("ncut", None))
    choice("symmetrize", symmetrize, (None, "max", "mean"))
    choice("self_loops", self_loops, ("auto", "keep", "drop"))
    if tau != "auto" and not (isinstance(tau, int | float) and tau == 0):
        tau = positive_number("tau", tau, or_else='0 or "auto"')
    choice("dtype", dtype, ("float32", "float64"))
    choice("reorder", reorder, ("auto", False))
    own = None if isinstance(ids, str) else make_ids(ids)
    kind = choice("ids", ids, ("auto", "rows", "numbers", "text")) if own is None else "rows"
    whole_number("first_id", first_id, 0)
    asked = _asked(
        source,
        normalize=normalize,
        block_rows=block_rows,
        symmetrize=symmetrize,
        self_loops=self_loops,
        tau=tau,
        dtype=dtype,
        reorder=reorder,
        key=key,
        columns=None if columns is None else list(columns),
        n=n,
        first_id=first_id,
        ids=ids if own is None else "given",
    )
    memory = int(machine.memory_limit(memory_limit))
    for name, value in (("block_rows", block_rows), ("n", n)):
        if value is not None:
            whole_number(name, value, 1)
    path = storage.normal_path(out)
    storage.check_free(path, GRAPH, overwrite=overwrite, options=storage_options)
    with (
        storage.naming_full_disk(path, "import the graph again"),
        only_writer(path),
        storage.replacing(path, GRAPH, overwrite=overwrite, options=storage_options) as place,
    ):
        parent = None if storage.is_url(path) else os.path.dirname(place)
        with tempfile.TemporaryDirectory(prefix="edges-", dir=parent) as folder:
            rules = IdRules(kind, n, first_id, folder, memory // 2)
            opened = open_source(source, key=key, columns=columns, rules=rules, options=storage_options)
            if own is not None:
                if len(own) != opened.n:
                    raise InputError(f"ids: there are {len(own)} for {opened.n} rows; expected one for each")
                opened = replace(opened, ids=own)
            opened = replace(opened, made={**opened.made, "asked": asked})
            drop_loops = _check_source(opened, normalize=normalize, self_loops=self_loops, tau=tau)
            bounds = row_bounds(opened.n, opened.n_edges, block_rows)
            filing = Filing(
                EdgeBuckets(folder, bounds, symmetrize, drop_loops),
                entries=2 * opened.n_edges,
                memory=max(memory - OWN, memory / 4),
                on_workers=_workers_help(folder, is_url=parent is None, blocks=len(bounds) - 1),
                progress=progress or silent,
            )
            _write(
                opened,
                partial(GraphWriter, place, bounds, np.dtype(dtype), storage_options),
                filing,
                normalize=normalize,
                tau=tau,
                reorder=reorder == "auto",
            )
    graph = open_graph(path, storage_options=storage_options)
    zeros, dropped = graph.block["zero_degree"], graph.block["made"]["dropped_self_loops"]
    if zeros:
        loops = f" ({dropped} self-loops were dropped; self_loops='keep' keeps them)" if dropped else ""
        warnings.warn(
            f"{path}: {zeros} of {graph.n} rows have no edge{loops}; they belong to no cluster and get label -1",
            GraphWarning,
            stacklevel=2,
        )
    return graph


def _asked(source: Any, **given: Any) -> dict[str, Any]:
    """What makes the graph again: the place of the source, if it has one, and settings that are no defaults."""
    place = getattr(source, "path", None) if isinstance(source, GraphStore) else source
    found = {"path": storage.normal_path(place)} if isinstance(place, str | os.PathLike) else {}
    known = inspect.signature(import_graph).parameters
    return found | {name: value for name, value in given.items() if value != known[name].default}


def _check_source(opened: EdgeSource, *, normalize: str | None, self_loops: str, tau: float | str) -> bool:
    """Refuse what cannot be imported as asked for, and tell whether to drop the diagonal."""
    if opened.n == 0 or opened.n_edges == 0:
        raise InputError(
            f"{opened.made['source']}: the graph is empty ({opened.n} nodes, {opened.n_edges} "
            "edges); expected at least one edge"
        )
    if not _is_normalized(opened):
        return self_loops == "drop" or (self_loops == "auto" and normalize == "ncut")
    if normalize is None or self_loops == "drop":
        raise InputError(
            f"{opened.made['source']}: this graph store is normalised already, its weights are gone; "
            "keep normalize='ncut' and self_loops='keep', or import the original again"
        )
    if tau not in ("auto", opened.store.tau if opened.store else 0.0):
        raise InputError(
            f"{opened.made['source']}: this graph store is normalised already, its weights are gone; leave "
            "tau out, or import the original again"
        )
    return False


def _write(
    source: EdgeSource,
    new_writer: Callable[[], GraphWriter],
    filing: Filing,
    *,
    normalize: str | None,
    tau: float | str,
    reorder: bool,
) -> None:
    """Run the import: edges to buckets, buckets to blocks of W, W reordered if asked for, W to blocks of A."""
    buckets = filing.buckets
    filing.read(source)
    merged = filing.merge()
    loops = sum(block.dropped_loops for block in merged)
    degree = np.concatenate([block.degree for block in merged])
    del merged
    _check_degrees(source, degree, loops)
    components = find_components(source.n, _edges(buckets))
    order, made = np.arange(source.n), dict(source.made)
    if source.store is not None:
        degree, order = source.store.degree, source.store.order
    scale = normalize == "ncut" and not _is_normalized(source)
    # before rows are moved: a sum in another order would round differently
    if _is_normalized(source):
        assert source.store is not None
        tau = source.store.tau
    else:
        tau = choose_tau(degree, tau) if scale else 0.0
    if reorder:
        better, made["order"] = choose_order(
            GraphPattern(buckets.bounds, buckets.pattern), partial(filing.progress, "order"), filing.memory
        )
        if better is not None:
            filing.move(rank_of(better))
            degree, order, components = degree[better], order[better], components.reordered(better)

    writer = new_writer()  # not before: at a URL it removes what is there
    writer.finish(
        filing.write(writer, np.sqrt(degree + tau) if scale else None),
        degree=degree,
        order=order,
        normalize=normalize or "none",
        component=components.of,
        tau=tau,
        ids=source.ids,
        made={
            **made,
            **components.facts,
            "dropped_self_loops": loops,
            "symmetrize": buckets.symmetrize or "none",
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "snmf_dist": version("snmf-dist"),
        },
    )


def _check_degrees(source: EdgeSource, degree: np.ndarray, loops: int) -> None:
    """Refuse a graph whose weights vanish or overflow when they are added up."""
    if not degree.any():
        found = (
            f"it holds {loops} self-loops alone; self_loops='keep' keeps them" if loops else "every weight is zero"
        )
        raise InputError(f"{source.made['source']}: {found}; expected at least one edge above zero")
    if not np.isfinite(degree).all():
        raise InputError(
            f"{source.made['source']}: the weights of row {int(np.argmin(np.isfinite(degree)))} add up to more "
            "than float64 holds; scale the weights down"
        )
    with np.errstate(over="ignore"):
        total = float(degree.sum())
    if not 1 / LARGEST <= total <= LARGEST:
        raise InputError(
            f"{source.made['source']}: the weights add up to {total:.3g}; expected {1 / LARGEST:.0e} to "
            f"{LARGEST:.0e}, so that their squares can be told from 0 and infinity; scale all weights"
        )


def _edges(buckets: EdgeBuckets) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The edges of the merged W, each once."""
    for i in range(len(buckets.bounds) - 1):
        yield edges_above(*buckets.pattern(i), first_row=int(buckets.bounds[i]))


def _workers_help(folder: str, *, is_url: bool, blocks: int) -> bool:
    """Whether the workers of the current client do the work: they do if a local store gets several blocks."""
    client = current_client()
    if client is None or client.asynchronous or is_url or blocks == 1:
        return False
    check_workers(client, folder)
    return True


def _is_normalized(source: EdgeSource) -> bool:
    return source.store is not None and source.store.normalize == "ncut"
