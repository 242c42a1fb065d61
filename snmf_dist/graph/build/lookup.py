"""The neighbours of new points among those that a graph was built from, and their weights.

The search is exact and by blocks: of the new points and of the old ones one block each is in memory.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from snmf_dist import storage
from snmf_dist.engine.client import current_client, run_tasks
from snmf_dist.errors import InputError
from snmf_dist.graph.build import stages
from snmf_dist.graph.build.neighbors import search
from snmf_dist.graph.build.points import NO_PATH, open_points
from snmf_dist.graph.build.prepare import checksum, make_job
from snmf_dist.graph.build.scratch import ScratchFiles, run_missing
from snmf_dist.graph.build.similarity import gaussian_weights, local_scales
from snmf_dist.graph.build.spooling import spool
from snmf_dist.graph.build.stages import Job
from snmf_dist.graph.store import GraphStore, Kept, read_kept, silent

FAR = 2.0  # times the scale of its neighbours at which a point is novel; see tests/test_predict.py


class Near(NamedTuple):
    """Edges of new rows to known rows.

    Attributes
    ----------
    rows : ndarray of int, shape (m, q)
        Known rows, in the order of the input; −1 where there are fewer.
    weights : ndarray, shape (m, q)
        W of each edge, 0 where there is none.
    copy_of : ndarray of int, shape (m,)
        The known row that the new one is a copy of, or −1.
    novel : ndarray of bool, shape (m,)
        Whether the new row is far from all that it should be near.
    """

    rows: np.ndarray
    weights: np.ndarray
    copy_of: np.ndarray
    novel: np.ndarray


def near_blocks(
    graph: GraphStore,
    new: Any,
    *,
    points: Any = None,
    block_rows: int | None = None,
    options: storage.Options = None,
) -> Iterator[Near]:
    """The edges of new points to the points of a graph, a block of new points at a time.

    Parameters
    ----------
    graph : GraphStore
        Built from points.
    new : path, array or CSR matrix, shape (m, d)
        The new points.
    points : path, array or CSR matrix, optional
        The points that the graph was built from; by default they are where they were then.
    block_rows : int, optional
        New points in a block. It changes no bit of the result.
    options : mapping, optional
        Passed to fsspec for URLs.
    """
    kept, made = read_kept(graph), graph.block["made"]
    shared = current_client() is not None
    with tempfile.TemporaryDirectory(
        prefix="snmf-dist-predict-", dir=_beside(graph) if shared else None
    ) as folder:
        job = _known(graph, kept, points, os.path.join(folder, "known"), shared=shared, options=options)
        source = open_points(new, options=options, least=1, **_how(made))
        if source.shape[1] != made["d"]:
            raise InputError(
                f"the new points have {source.shape[1]} columns; expected {made['d']}, as the points that "
                f"{graph.path} was built from"
            )
        os.makedirs(os.path.join(folder, "new"))
        n, rows = source.shape[0], block_rows or int(np.diff(job.inputs).max())
        fresh = replace(
            job,
            points=spool(source, os.path.join(folder, "new"), shared=shared),
            inputs=np.append(np.arange(0, n, rows), n),
        )
        scales = np.empty(graph.n)
        scales[graph.order] = kept.scales
        blocks = len(fresh.inputs) - 1
        run_tasks(partial(stages.check, fresh), range(blocks), threads=1)
        for first in range(0, blocks, 64):  # the lists of a few blocks at a time are on disk
            files = ScratchFiles(os.path.join(folder, str(first)))
            os.makedirs(files.folder)
            task = _Search(job, fresh, files, scales, first)
            run_missing(files, "near", task, min(64, blocks - first), silent, at_once=1)
            for i in range(min(64, blocks - first)):
                yield Near(*(np.array(files.load("near", i, name)) for name in Near._fields))
            files.drop("near")


def _how(made: dict[str, Any]) -> dict[str, Any]:
    """Which columns, or which matrix, of a file the graph was built from."""
    return {name: made[name] for name in ("columns", "key") if name in made}


def _beside(graph: GraphStore) -> str | None:
    """A folder that all workers see: where the graph is, if that is a local path."""
    return None if storage.is_url(graph.path) else os.path.dirname(graph.path)


def _known(
    graph: GraphStore, kept: Kept, points: Any, folder: str, *, shared: bool, options: storage.Options
) -> Job:
    """The points of the graph, transformed as its build did; refused if they are others."""
    made = graph.block["made"]
    if points is None:
        if made["source"] == NO_PATH:
            raise InputError(
                f"{graph.path}: was built from points in memory, which are not kept; give them as points= "
                "(--points)"
            )
        points = made["source"]
    os.makedirs(folder)
    settings = {"cells": 1, "threads": 1, "block_rows": None, **made}
    source = open_points(points, options=options, **_how(made))
    job = make_job(source, ScratchFiles(folder), settings, shared=shared) if source.shape[0] == graph.n else None
    if job is None or checksum(job) != made["points"]:
        raise InputError(
            f"{getattr(source, 'path', 'points')}: these are not the points that {graph.path} was built from "
            f"({source.shape[0]} rows, {graph.n} in the graph; checksums are compared); give those as points=, or "
            "build and fit again"
        )
    return replace(job, shift=kept.shift, scale=kept.divisor, projection=kept.projection)


@dataclass(frozen=True)
class _Search:
    """A task: the edges of one block of new points."""

    job: Job
    fresh: Job
    files: ScratchFiles
    scales: np.ndarray
    first: int

    def __call__(self, i: int) -> None:
        X = self.fresh.read(self.first + i)
        nobody = np.full(X.shape[0], -1)
        near = search(X, nobody, self.job.read_all(), min(max(self.job.q, self.job.p), self.job.n))
        own = local_scales(near.distances, p=self.job.p)
        rows, lengths = near.indices[:, : self.job.q], near.distances[:, : self.job.q]
        theirs = self.scales[rows]
        weights = gaussian_weights(lengths, np.broadcast_to(own[:, None], rows.shape), theirs)
        self.files.save(
            "near",
            i,
            rows=rows,
            weights=np.where(rows < 0, 0.0, weights),
            copy_of=np.where(lengths[:, 0] == 0, rows[:, 0], -1),
            novel=own > FAR * np.median(theirs, axis=1),
        )
