"""Before the stages: points made readable from any task, checked, their shift, scale and projection found."""

import zlib
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from snmf_dist import cluster
from snmf_dist.errors import InputError
from snmf_dist.graph.build import stages
from snmf_dist.graph.build.partition import LEAVES_A_CELL
from snmf_dist.graph.build.points import spool
from snmf_dist.graph.build.scratch import Workshop
from snmf_dist.graph.build.stages import Job
from snmf_dist.graph.store import Progress, row_bounds, silent
from snmf_dist.stored import load_rows

INPUT_BYTES = 1 << 25  # of a block of points as float32
SAMPLE_ROWS = 50_000
SPARSE_ENTRIES = 200  # entries of a sparse row, for the size of its blocks


def make_job(source: Any, shop: Workshop, settings: dict[str, Any], *, shared: bool) -> Job:
    """Spool the points if need be, and cut them into blocks."""
    n, d = source.shape
    points = spool(source, shop.folder, shared=shared)
    rows = max(1, INPUT_BYTES // (4 * (SPARSE_ENTRIES if points.is_sparse else d)))
    sample = max(SAMPLE_ROWS, 100 * LEAVES_A_CELL * settings["cells"])
    return Job(
        shop=shop,
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


def check_points(job: Job, pca: int | None, tell: Progress) -> tuple[Job, str]:
    """Check every block; refuse points that changed since the build was begun; find shift, scale, projection.

    Returns the job that knows them, and the checksum of the points.
    """
    glances = _look(job, tell)
    crcs = [glance.crc for glance in glances]
    if not job.shop.has("check", 0):
        job.shop.save("check", 0, crc=np.array(crcs))
    elif not np.array_equal(job.shop.load("check", 0, "crc"), crcs):
        raise InputError(
            f"{job.shop.folder}: the points changed since this build was begun; pass resume=False to start over"
        )
    job = replace(job, scale=max(glance.largest for glance in glances) or 1.0)
    if not job.points.is_sparse and (job.metric == "euclidean" or pca is not None):
        job = replace(job, shift=sum(glance.total / job.n for glance in glances))
    if pca is not None:
        job = replace(job, projection=_projection(job, pca, tell))
    return job, _combined(crcs)


def checksum(job: Job) -> str:
    """The checksum of all points as they are now."""
    return _combined([glance.crc for glance in _look(job, silent)])


def _look(job: Job, tell: Progress) -> list[stages.Glance]:
    blocks = len(job.inputs) - 1
    return cluster.run_tasks(
        partial(stages.check, job), range(blocks), threads=1, done=lambda k: tell("check", k, blocks)
    )


def _combined(crcs: list[int]) -> str:
    return f"{zlib.crc32(np.array(crcs, dtype=np.int64).tobytes()):08x}"


def _projection(job: Job, pca: int, tell: Progress) -> np.ndarray:
    """Principal components of the points, (pca, d), out of core."""
    if not job.shop.has("pca", 0):
        from dask_ml.decomposition import PCA

        tell("pca", 0, 1)
        plain = replace(job, metric="euclidean")
        X = load_rows(plain.read_rows, job.inputs, job.points.shape[1], meta=np.empty((0, 0), dtype=job.length))
        found = PCA(pca, svd_solver="randomized", random_state=job.seed).fit(X)
        job.shop.save("pca", 0, components=np.asarray(found.components_))
        tell("pca", 1, 1)
    return np.array(job.shop.load("pca", 0, "components"))
