"""Before the search: points made readable from any task, checked, shifted and scaled, and cut into cells."""

import zlib
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist.engine.client import run_tasks
from snmf_dist.engine.tasks import array_from_reader
from snmf_dist.errors import InputError
from snmf_dist.graph.build import stages
from snmf_dist.graph.build.partition import LEAVES_A_CELL, Partition, make_partition, positions
from snmf_dist.graph.build.scratch import ScratchFiles, run_missing
from snmf_dist.graph.build.spooling import spool
from snmf_dist.graph.build.stages import Job
from snmf_dist.graph.store import StageProgress, row_bounds, silent

INPUT_BYTES = 1 << 25  # of a block of points as float32
SAMPLE_ROWS = 50_000
SPARSE_ENTRIES = 200  # entries of a sparse row, for the size of its blocks


def make_job(source: Any, files: ScratchFiles, settings: dict[str, Any], *, shared: bool) -> Job:
    """Spool the points if need be, and cut them into blocks."""
    n, d = source.shape
    points = spool(source, files.folder, shared=shared)
    rows = max(1, INPUT_BYTES // (4 * (SPARSE_ENTRIES if points.is_sparse else d)))
    sample = max(SAMPLE_ROWS, 100 * LEAVES_A_CELL * settings["cells"])
    return Job(
        files=files,
        points=points,
        inputs=np.append(np.arange(0, n, rows), n),
        bounds=row_bounds(n, int(1.6 * n * settings["neighbors"]), settings["block_rows"]),
        q=settings["neighbors"],
        p=settings["scale_neighbor"],
        metric=settings["metric"],
        exact=settings["exact"],
        sample=min(1.0, sample / n),
        seed=settings["seed"],
        threads=settings["threads"],
    )


def check_points(job: Job, pca: int | None, progress: StageProgress) -> tuple[Job, str]:
    """Check every block; refuse points that changed since the build was begun; find shift, scale, projection.

    Returns the job that knows them, and the checksum of the points.
    """
    summaries = _summarize(job, progress)
    crcs = [summary.crc for summary in summaries]
    if not job.files.has("check", 0):
        job.files.save("check", 0, crc=np.array(crcs))
    elif not np.array_equal(job.files.load("check", 0, "crc"), crcs):
        raise InputError(
            f"{job.files.folder}: the points changed since this build was begun; pass resume=False to start over"
        )
    job = replace(job, scale=max(summary.largest for summary in summaries) or 1.0)
    if not job.points.is_sparse and (job.metric == "euclidean" or pca is not None):
        job = replace(job, shift=sum(summary.total / job.n for summary in summaries))
    if pca is not None:
        job = replace(job, projection=_projection(job, pca, progress))
    return job, _combined(crcs)


def checksum(job: Job) -> str:
    """The checksum of all points as they are now."""
    return _combined([summary.crc for summary in _summarize(job, silent)])


def _summarize(job: Job, progress: StageProgress) -> list[stages.BlockSummary]:
    blocks = len(job.inputs) - 1
    return run_tasks(
        partial(stages.check, job), range(blocks), threads=1, done=lambda k: progress("check", k, blocks)
    )


def _combined(crcs: list[int]) -> str:
    return f"{zlib.crc32(np.array(crcs, dtype=np.int64).tobytes()):08x}"


def _projection(job: Job, pca: int, progress: StageProgress) -> np.ndarray:
    """Principal components of the points, (pca, d), out of core."""
    if not job.files.has("pca", 0):
        from dask_ml.decomposition import PCA

        progress("pca", 0, 1)
        plain = replace(job, metric="euclidean")
        X = array_from_reader(plain.read_rows, job.inputs, job.points.shape[1], dtype=job.length)
        found = PCA(pca, svd_solver="randomized", random_state=job.seed).fit(X)
        job.files.save("pca", 0, components=np.asarray(found.components_))
        progress("pca", 1, 1)
    return np.array(job.files.load("pca", 0, "components"))


def cut_into_cells(job: Job, settings: dict[str, Any], progress: StageProgress) -> tuple[int, np.ndarray]:
    """Cut the points into cells and number the rows leaf by leaf.

    Returns
    -------
    cells : int
        Number of cells; for an exact build, number of blocks of points.
    order : ndarray of int64, shape (n,)
        The number in the input of each row of the graph.
    """
    files, blocks = job.files, len(job.inputs) - 1
    if job.exact:
        return blocks, np.arange(job.n)
    if not files.has("partition", 0):
        run_missing(files, "sample", partial(stages.draw, job), blocks, progress, at_once=1)
        parts = [files.load("sample", b, "rows") for b in range(blocks)]
        sample = sparse.vstack(parts) if sparse.issparse(parts[0]) else np.concatenate(parts)
        made = make_partition(
            sample, settings["cells"], n=job.n, replication=settings["replication"], seed=job.seed
        )
        files.save("partition", 0, leaves=made.leaves, starts=made.starts, reach=np.array(made.reach))
    partition = Partition(
        leaves=np.array(files.load("partition", 0, "leaves")),
        starts=np.array(files.load("partition", 0, "starts")),
        reach=float(files.load("partition", 0, "reach")),
    )
    if not files.finished("search"):
        run_missing(
            files, "assign", partial(stages.assign, job, partition), blocks, progress, at_once=settings["at_once"]
        )
    if not files.finished("order"):
        leaf_of = [np.asarray(files.load("assign", b, "leaf")) for b in range(blocks)]
        for b, row in enumerate(positions(leaf_of, len(partition.leaves))):
            files.save("order", b, row=row)
        files.finish("order")
    row_of = files.vector("order", blocks, "row")
    order = np.empty(job.n, dtype=np.int64)
    order[row_of] = np.arange(job.n)
    return partition.n_cells, order
