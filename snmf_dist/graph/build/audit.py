"""What a built graph is worth: measured recall, and the components it falls into."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from snmf_dist.cluster import run_tasks
from snmf_dist.graph.build.neighbors import KNN, merge, search
from snmf_dist.graph.build.stages import Job

SAMPLE = 1000
SPECK = 1000  # a component of fewer rows, and of fewer than a hundredth of all, is a speck


class Components(NamedTuple):
    """The component of each row, (n,) from 0 for the largest, and their sizes, largest first."""

    of: np.ndarray
    sizes: np.ndarray

    @property
    def specks(self) -> np.ndarray:
        """Numbers of the small components; never the largest."""
        limit = min(SPECK, max(2, len(self.of) // 100))
        return np.flatnonzero(self.sizes < limit)[int(self.sizes[0] < limit) :]

    def joined(self, edges: np.ndarray) -> "Components":
        """The components with the rows of `edges`, (m, 2), joined too."""
        ends = self.of[edges].T
        rank = find_components(len(self.sizes), [(ends[0], ends[1])]).of
        return _ranked(rank[self.of])


def find_components(n: int, blocks: Iterable[tuple[np.ndarray, np.ndarray]]) -> Components:
    """Connected components of a graph seen once, a batch of edges at a time.

    Examples
    --------
    >>> edges = [(np.array([0, 1]), np.array([1, 2])), (np.array([3]), np.array([4]))]
    >>> find_components(5, edges).sizes
    array([3, 2])
    """
    of = np.arange(n)
    for rows, columns in blocks:
        edges = sparse.coo_matrix((np.ones(len(rows), dtype=bool), (of[rows], of[columns])), shape=(n, n))
        of = connected_components(edges, directed=False)[1][of]
    return _ranked(of)


def _ranked(of: np.ndarray) -> Components:
    """Components numbered by size, the largest first."""
    sizes = np.bincount(of)
    sizes, names = np.sort(sizes)[::-1], np.argsort(-sizes, kind="stable")
    rank = np.empty(len(names), dtype=np.int64)
    rank[names] = np.arange(len(names))
    return Components(rank[of], sizes[sizes > 0])


def edges_of(job: Job, stage: str) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """The entries of all row blocks of W above the diagonal: those that weigh anything, once."""
    for i in range(len(job.bounds) - 1):
        W = job.shop.load(stage, i, "W")
        rows = np.repeat(np.arange(job.bounds[i], job.bounds[i + 1], dtype=job.index), np.diff(W.indptr))
        above = rows < W.indices
        yield rows[above], W.indices[above]


def measure_recall(job: Job, row_of: np.ndarray, *, at_once: int) -> float:
    """Share of the true `q` nearest neighbours that the lists hold, on about a thousand sampled rows.

    A neighbour counts if it is no farther than the true q-th: ties are not misses.
    """
    ids = np.sort(np.random.default_rng(job.seed).choice(job.n, min(SAMPLE, job.n), replace=False))
    queries = _take(job, ids)
    parts = run_tasks(_Search(job, queries, ids), range(len(job.inputs) - 1), threads=at_once)
    true = parts[0]
    for part in parts[1:]:
        true = merge(true, part, job.q)
    limit = true.distances[:, -1] * (1 + 1e-5)
    rows = row_of[ids]
    block = np.searchsorted(job.bounds, rows, side="right") - 1
    hits = 0
    for i in np.unique(block):
        mine = block == i
        found = job.shop.load("gather", int(i), "distances")[rows[mine] - job.bounds[i]]
        hits += int(np.count_nonzero(found <= limit[mine, None]))
    return min(hits / (len(ids) * job.q), 1.0)


@dataclass(frozen=True)
class _Search:
    """A task: the sampled rows' nearest neighbours in one block of points."""

    job: Job
    queries: np.ndarray
    ids: np.ndarray

    def __call__(self, b: int) -> KNN:
        rows = self.job.read(b)
        return search(self.queries, self.ids, [(int(self.job.inputs[b]), rows)], self.job.q)


def join_specks(job: Job, components: Components, id_of: np.ndarray) -> np.ndarray:
    """The shortest edge from each small component to a row outside it: (m, 2) of rows."""
    small = np.flatnonzero(np.isin(components.of, components.specks))
    ids = id_of[small]
    by_id = np.argsort(ids)
    small, ids = small[by_id], ids[by_id]
    component_of_id = np.empty(job.n, dtype=np.int64)
    component_of_id[id_of] = components.of
    # A speck has fewer than SPECK rows: among so many nearest one is outside it.
    largest = int(components.sizes[components.specks[0]])
    near = search(_take(job, ids), ids, job.read_all(), min(largest, job.n - 1))
    inside = component_of_id[near.indices] == components.of[small][:, None]
    distances = np.where(inside | (near.indices < 0), np.inf, near.distances)
    nearest = distances.argmin(axis=1)
    length = distances[np.arange(len(small)), nearest]
    row_of = np.empty(job.n, dtype=np.int64)
    row_of[id_of] = np.arange(job.n)
    partner = row_of[near.indices[np.arange(len(small)), nearest]]
    order = np.lexsort((length, components.of[small]))
    first = order[np.unique(components.of[small][order], return_index=True)[1]]
    return np.unique(np.sort(np.column_stack((small, partner))[first], axis=1), axis=0)


def _take(job: Job, ids: np.ndarray) -> np.ndarray:
    """The points of the given ids, which rise."""
    parts = []
    for b in range(len(job.inputs) - 1):
        low, high = np.searchsorted(ids, job.inputs[b : b + 2])
        if high > low:
            parts.append(job.read(b)[ids[low:high] - job.inputs[b]])
    return sparse.csr_matrix(sparse.vstack(parts)) if sparse.issparse(parts[0]) else np.concatenate(parts)
