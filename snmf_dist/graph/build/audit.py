"""How good a built graph is: the measured recall, and the components it falls into."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from snmf_dist.engine.client import run_tasks
from snmf_dist.graph.build import stages
from snmf_dist.graph.build.neighbors import KNN, merge, search
from snmf_dist.graph.build.scratch import run_missing
from snmf_dist.graph.build.stages import Job
from snmf_dist.graph.store import Components, StageProgress, edges_above, find_anchors, find_components

AUDIT_ROWS = 1000  # rows that recall is measured on
ANCHOR_PAIRS = 2e9  # pairs of points that may be compared to find where small components would be joined: seconds


def edges_of(job: Job, stage: str) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """The entries of all row blocks of W above the diagonal: those that weigh anything, once."""
    for i in range(len(job.bounds) - 1):
        W = job.files.load(stage, i, "W")
        yield edges_above(W.indptr, W.indices, first_row=int(job.bounds[i]))


def measure_recall(job: Job, row_of: np.ndarray, *, at_once: int) -> float:
    """Share of the true `q` nearest neighbours that the lists hold, on about a thousand sampled rows.

    A neighbour counts if it is no farther than the true q-th: ties are not misses.
    """
    ids = np.sort(np.random.default_rng(job.seed).choice(job.n, min(AUDIT_ROWS, job.n), replace=False))
    queries = _take(job, ids)
    parts = run_tasks(_AuditSearch(job, queries, ids), range(len(job.inputs) - 1), threads=at_once)
    true = parts[0]
    for part in parts[1:]:
        true = merge(true, part, job.q)
    limit = true.distances[:, -1] * (1 + 1e-5)
    rows = row_of[ids]
    block = np.searchsorted(job.bounds, rows, side="right") - 1
    hits = 0
    for i in np.unique(block):
        mine = block == i
        found = job.files.load("gather", int(i), "distances")[rows[mine] - job.bounds[i]]
        hits += int(np.count_nonzero(found <= limit[mine, None]))
    return min(hits / (len(ids) * job.q), 1.0)


@dataclass(frozen=True)
class _AuditSearch:
    """A task: the sampled rows' nearest neighbours in one block of points."""

    job: Job
    queries: np.ndarray
    ids: np.ndarray

    def __call__(self, b: int) -> KNN:
        rows = self.job.read(b)
        return search(self.queries, self.ids, [(int(self.job.inputs[b]), rows)], self.job.q)


def join_small(job: Job, components: Components, id_of: np.ndarray) -> np.ndarray:
    """The shortest edge from each small component to a row outside it: (m, 2) of rows."""
    rows = np.flatnonzero(np.isin(components.of, components.small))
    ids = id_of[rows]
    by_id = np.argsort(ids)
    rows, ids = rows[by_id], ids[by_id]
    component_of_id = np.empty(job.n, dtype=np.int64)
    component_of_id[id_of] = components.of
    # `largest` neighbours are more than a small component has: at least one of them is outside it.
    largest = int(components.sizes[components.small[0]])
    near = search(_take(job, ids), ids, job.read_all(), min(largest, job.n - 1))
    inside = component_of_id[near.indices] == components.of[rows][:, None]
    distances = np.where(inside | (near.indices < 0), np.inf, near.distances)
    nearest = distances.argmin(axis=1)
    length = distances[np.arange(len(rows)), nearest]
    row_of = np.empty(job.n, dtype=np.int64)
    row_of[id_of] = np.arange(job.n)
    partner = row_of[near.indices[np.arange(len(rows)), nearest]]
    order = np.lexsort((length, components.of[rows]))
    first = order[np.unique(components.of[rows][order], return_index=True)[1]]
    return np.unique(np.sort(np.column_stack((rows, partner))[first], axis=1), axis=0)


def _take(job: Job, ids: np.ndarray) -> np.ndarray:
    """The points of the given ids, which rise."""
    parts = []
    for b in range(len(job.inputs) - 1):
        low, high = np.searchsorted(ids, job.inputs[b : b + 2])
        if high > low:
            parts.append(job.read(b)[ids[low:high] - job.inputs[b]])
    return sparse.csr_matrix(sparse.vstack(parts)) if sparse.issparse(parts[0]) else np.concatenate(parts)


def join_all(job: Job, components: Components, id_of: np.ndarray) -> np.ndarray:
    """Edges that join every small component, directly or through others, to one that is not small, (m, 2)."""
    edges = np.empty((0, 2), dtype=np.int64)
    while len(components.small):  # two may choose each other, and their union may still be small
        new = join_small(job, components, id_of)
        edges = np.concatenate((edges, new))
        components = components.joined(new)
    return edges


def anchors(job: Job, components: Components, id_of: np.ndarray) -> np.ndarray | None:
    """Where each row of a small component would be joined, (n,); None if there are none, or too many to search."""
    pairs = float(components.sizes[components.small].sum()) * job.n
    if not 0 < pairs <= ANCHOR_PAIRS:
        return None
    return find_anchors(components, join_all(job, components, id_of))


def audit(
    job: Job, order: np.ndarray, settings: dict[str, Any], progress: StageProgress
) -> tuple[dict[str, Any], Components, str]:
    """Measure recall and components, and join small components if `connect` is set.

    Returns
    -------
    facts : dict
        Recall, number and sizes of the components, and number of edges added.
    components : Components
        The components themselves.
    stage : str
        The stage whose files hold W.
    """
    progress("audit", 0, 2)
    row_of = np.empty(job.n, dtype=np.int64)
    row_of[order] = np.arange(job.n)
    recall = 1.0 if job.exact else measure_recall(job, row_of, at_once=settings["at_once"])
    progress("audit", 1, 2)
    components = find_components(job.n, edges_of(job, "weigh"))
    progress("audit", 2, 2)
    joined, stage = 0, "weigh"
    if settings["connect"] and len(components.small):
        stage, edges = "join", join_all(job, components, order)
        joined, blocks = len(edges), len(job.bounds) - 1
        run_missing(
            job.files, stage, partial(stages.join, job, edges), blocks, progress, at_once=settings["at_once"]
        )
        components = find_components(job.n, edges_of(job, stage))
    return {"recall": round(recall, 4), **components.facts, "joined": joined}, components, stage
