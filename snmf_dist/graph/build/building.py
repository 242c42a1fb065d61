"""build_graph(): points to a graph store, block by block; no process holds all rows.

The stages are in `stages`; this module sizes them, runs them in turn and puts the pieces together.
"""

import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from snmf_dist import storage
from snmf_dist.engine.client import check_workers, current_client
from snmf_dist.errors import GraphWarning, InputError, SnmfError, StoreExists
from snmf_dist.graph.build import stages
from snmf_dist.graph.build.audit import anchors, audit
from snmf_dist.graph.build.points import NO_PATH, open_points
from snmf_dist.graph.build.prepare import check_points, checksum, cut_into_cells, make_job
from snmf_dist.graph.build.rowids import open_row_ids
from snmf_dist.graph.build.scratch import ScratchFiles, open_scratch, run_missing
from snmf_dist.graph.build.settings import check_settings, choose_cells
from snmf_dist.graph.build.stages import Job
from snmf_dist.graph.store import (
    GRAPH,
    BlockRecord,
    GraphStore,
    GraphWriter,
    Kept,
    StageProgress,
    normalize,
    open_graph,
    silent,
    write_kept,
)
from snmf_dist.ids import Ids, same_ids
from snmf_dist.locks import only_writer
from snmf_dist.validation import synchronous

UNFINISHED = "graph.zarr"  # in the build's folder, until it is whole
LOW_RECALL = 0.9
USUAL_K = 20


def build_graph(
    points: Any,
    out: str | os.PathLike[str],
    *,
    neighbors: int | None = None,
    scale_neighbor: int = 7,
    metric: str = "euclidean",
    pca: int | None = None,
    seed: int = 0,
    block_rows: int | None = None,
    memory_limit: int | str | None = None,
    replication: float = 1.6,
    exact: bool | None = None,
    connect: bool = False,
    resume: bool = True,
    reuse: bool = False,
    columns: Sequence[str] | None = None,
    key: str | None = None,
    ids: Any = None,
    overwrite: bool = False,
    storage_options: storage.Options = None,
    progress: StageProgress | None = None,
) -> GraphStore:
    """Build the similarity graph of points and write it as a graph store.

    W_ij = exp(−d²_ij / (σ_i σ_j)) if i is among the q nearest neighbours of j or j among those of i, and
    A = D^-1/2 W D^-1/2. Runs on the current `distributed.Client`, or on threads.

    Parameters
    ----------
    points : str, path-like, ndarray, dask.array.Array, CSR matrix or AnnData, shape (n, d)
        A path may be a Zarr array (or its URL), ``.npy``, ``.npz``, ``.parquet``, ``.arrow``, AnnData (``.h5ad``
        or Zarr), other HDF5, ``.fbin`` or ``.u8bin``.
    out : str or path-like
        Where to write. Files of the build are kept in ``<out>.build`` until it is done; for a URL, under its
        name in the working directory.
    neighbors : int, optional
        Number of nearest neighbours of a row, q; by default ⌊log₂ n⌋ + 1, as in the paper.
    scale_neighbor : int, default 7
        σ_i is the distance of row i to this neighbour; the paper's value.
    metric : {"euclidean", "cosine"}, default "euclidean"
        Distance between points. Cosine is the Euclidean distance between rows of unit length.
    pca : int, optional
        Number of principal components to project the points on first.
    seed : int, default 0
        Seed of the partition and of NNDescent. The same settings and number of threads give the same graph.
    block_rows : int, optional
        Number of rows of a block of the graph; by default a block has about two million entries.
    memory_limit : int or str, optional
        Bytes that a process may use, as ``"1GiB"``: it decides how many cells the points are cut into. By
        default half of this machine's memory, or the limit of the smallest worker.
    replication : float, default 1.6
        Mean number of cells that a row is put in, if there are several. More are slower and more accurate.
    exact : bool, optional
        Whether all pairs of points are compared; by default up to 50,000 points are.
    connect : bool, default False
        Join each small component (fewer than n/100 rows, and than 1000) to its nearest row outside by one edge.
    resume : bool, default True
        Continue an interrupted build; False starts over.
    reuse : bool, default False
        Return the graph store at `out` if it was made from these points with these settings, and replace it
        otherwise.
    columns : sequence of str, optional
        The columns of a Parquet or Arrow file to read; all by default. A column may hold numbers, or lists of as
        many numbers in each row.
    key : str, optional
        Name of the ``obsm`` matrix of AnnData to read, or ``"X"``; in other HDF5 the name of a dataset. Not
        needed if there is only one.
    ids : str, or sequence of str or int, optional
        Your own id of each row, each once: the name of a column of a Parquet or Arrow file, or the ids. They are
        stored with the graph (``graph.ids``) and carried into results (``solution.ids``). AnnData has its own.
    overwrite : bool, default False
        Replace the graph store at `out`. The old one is kept until the new one is complete.
    storage_options : mapping, optional
        Passed to fsspec for URLs.
    progress : callable, optional
        Called as ``progress(stage, done, total)``.

    Returns
    -------
    GraphStore
        ``graph.recall`` is the measured recall and ``graph.components`` the number of components;
        ``graph.info()`` shows how it was made.

    Examples
    --------
    >>> import numpy as np, snmf_dist, tempfile
    >>> X = np.random.default_rng(0).standard_normal((300, 2))
    >>> graph = snmf_dist.build_graph(X, tempfile.mkdtemp() + "/graph.zarr")
    >>> graph.n, graph.recall, graph.components
    (300, 1.0, 1)
    """
    begin = time.perf_counter()
    synchronous(current_client())
    path = storage.normal_path(out)
    overwrite = overwrite or reuse
    storage.check_free(path, GRAPH, overwrite=overwrite, options=storage_options)
    row_ids, columns = open_row_ids(points, ids, columns, storage_options)
    source = open_points(points, columns=columns, key=key, options=storage_options)
    if row_ids is not None and len(row_ids) != source.shape[0]:
        raise InputError(f"ids: there are {len(row_ids)} for {source.shape[0]} points; expected one for each")
    settings = check_settings(
        source,
        neighbors=neighbors,
        scale_neighbor=scale_neighbor,
        metric=metric,
        pca=pca,
        seed=seed,
        replication=replication,
        block_rows=block_rows,
        exact=exact,
        connect=connect,
    )
    old = _made_from(path, source, settings, storage_options) if reuse else None
    if old is not None and (row_ids is None or same_ids(row_ids, old.ids)):
        return old
    derived = choose_cells(settings, memory_limit)
    then = "make the same call again: it continues"
    with storage.naming_full_disk(path, then), only_writer(_folder(path) if storage.is_url(path) else path):
        asked = {**settings, "memory_limit": memory_limit}
        files, settings = open_scratch(_folder(path), asked, derived, resume=resume)
        given: Any = {"begin": begin, "options": storage_options, "ids": row_ids}
        made = _build(source, files, settings, path, progress or silent, **given)
        if not storage.is_url(path):
            with storage.replacing(path, GRAPH, overwrite=overwrite) as fresh:
                os.rename(os.path.join(files.folder, UNFINISHED), fresh)
        shutil.rmtree(files.folder, ignore_errors=True)
    graph = open_graph(path, storage_options=storage_options)
    graph.validate()
    _warn(graph, made)
    return graph


def _build(
    source: Any,
    files: ScratchFiles,
    settings: dict[str, Any],
    path: str,
    progress: StageProgress,
    *,
    begin: float,
    options: storage.Options,
    ids: Ids | None,
) -> dict[str, Any]:
    """Run all stages, to a graph store in the build's folder, or at `path` if that is a URL."""
    client, at_once = current_client(), settings["at_once"]
    if client is not None:
        check_workers(client, files.folder)
    job = make_job(source, files, settings, shared=client is not None)
    try:
        job, points = check_points(job, settings["pca"], progress)
    except InputError:
        if not files.has("check", 0):  # nothing was built: leave nothing
            shutil.rmtree(files.folder, ignore_errors=True)
        raise
    cells, order = cut_into_cells(job, settings, progress)
    run_missing(
        files, "search", partial(stages.find_neighbors, job), cells, progress, at_once=at_once if job.exact else 1
    )
    files.drop("assign")
    blocks = len(job.bounds) - 1
    run_missing(files, "gather", partial(stages.gather, job, cells), blocks, progress, at_once=at_once)
    files.drop("search")
    run_missing(files, "weigh", partial(stages.weigh, job), blocks, progress, at_once=at_once)

    quality, components, stage = audit(job, order, settings, progress)
    place = path if storage.is_url(path) else os.path.join(files.folder, UNFINISHED)
    writer, records, degree = _write_blocks(job, stage, place, progress, options)
    if checksum(job) != points:
        raise InputError(f"{files.folder}: the points changed during the build; pass resume=False to start over")
    origin = {"source": getattr(source, "path", NO_PATH), **getattr(source, "how", {})}
    made = {**origin, **_facts(job, settings, begin=begin), "points": points, **quality}
    kept = Kept(files.vector("gather", blocks, "scale"), np.atleast_1d(job.shift), job.scale, job.projection)
    writer.finish(
        records,
        degree=degree,
        order=order,
        normalize="ncut",
        made=made,
        component=components.of,
        keep=partial(write_kept, kept=kept),
        anchor=anchors(job, components, order),
        ids=ids,
    )
    return made


def _folder(path: str) -> str:
    """Where the files of a build are kept: beside a local graph, else in the working directory."""
    if storage.is_url(path):
        return os.path.abspath(path.split("://", 1)[1].replace("/", "-") + ".build")
    return f"{path}.build"


def _made_from(path: str, source: Any, settings: dict[str, Any], options: storage.Options) -> GraphStore | None:
    """The graph at `path`, if it was made from these very points with these settings."""
    try:
        graph = open_graph(path, storage_options=options)
    except SnmfError:  # there is none, or it cannot be read
        return None
    made = graph.block["made"]
    if "points" not in made:
        raise StoreExists(
            f"{path}: holds a graph that was not built from points, and is not replaced; move it away"
        )
    if any(made.get(key) != value for key, value in settings.items() if key != "block_rows"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        job = make_job(source, ScratchFiles(folder), {**settings, "cells": 1, "threads": 1}, shared=False)
        return graph if made["points"] == checksum(job) else None


def _facts(job: Job, settings: dict[str, Any], *, begin: float) -> dict[str, Any]:
    blocks = len(job.bounds) - 1
    scale = job.files.vector("gather", blocks, "scale")
    short = sum(int((job.files.load("gather", i, "indices") < 0).any(axis=1).sum()) for i in range(blocks))
    packages = ("snmf-dist", "pynndescent", "numpy", "scikit-learn")
    return {
        **{key: value for key, value in settings.items() if key != "block_rows"},
        "zero_scale_rows": int(np.count_nonzero(scale == 0)),
        "short_lists": short,
        "seconds": round(time.perf_counter() - begin, 1),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in packages},
    }


def _write_blocks(
    job: Job, stage: str, place: str, progress: StageProgress, options: storage.Options
) -> tuple[GraphWriter, list[BlockRecord], np.ndarray]:
    """Normalise the blocks of W and write them as blocks of A."""
    files, blocks = job.files, len(job.bounds) - 1
    if not storage.exists(place, options):
        files.undo("write")  # moved away or lost since: W is still here
    begun = any(files.has("write", i) for i in range(blocks))
    writer = GraphWriter(place, job.bounds, np.dtype(np.float32), options, resume=begun)
    degree = files.vector(stage, blocks, "degree")
    run_missing(files, "write", partial(_write, job, stage, writer, np.sqrt(degree)), blocks, progress, at_once=1)
    records = [BlockRecord(*files.load("write", i, "record").tolist()) for i in range(blocks)]
    return writer, records, degree


def _write(job: Job, stage: str, writer: GraphWriter, root: np.ndarray, i: int) -> None:
    W = job.files.load(stage, i, "W")
    A = normalize(W, root[job.bounds[i] : job.bounds[i + 1]], root)
    job.files.save("write", i, record=np.array(writer.write_block(i, A)))


def _warn(graph: GraphStore, made: dict[str, Any]) -> None:
    if made["recall"] < LOW_RECALL:
        warnings.warn(
            f"{graph.path}: the lists hold {made['recall']:.0%} of the true neighbours; raise memory_limit "
            "(larger cells), replication or neighbors, or reduce the points with pca",
            GraphWarning,
            stacklevel=3,
        )
    if made["components"] > USUAL_K:
        advice = (
            "raise neighbors" if made["connect"] else "raise neighbors, or join the small ones with connect=True"
        )
        warnings.warn(
            f"{graph.path}: the graph falls into {made['components']} components, and each claims a cluster "
            f"of its own; {advice}",
            GraphWarning,
            stacklevel=3,
        )
    if graph.block["zero_degree"]:
        warnings.warn(
            f"{graph.path}: {graph.block['zero_degree']} of {graph.n} rows are so far from all others that "
            "their edges weigh nothing; they get label -1",
            GraphWarning,
            stacklevel=3,
        )
