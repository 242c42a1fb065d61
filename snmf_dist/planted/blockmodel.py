"""Edges of a degree-corrected block model (Karrer, Newman 2011), drawn one by one and independently.

Node r of a cluster of m nodes, in order of degree, has the expected degree of a power law: its share of the ends
of edges in the cluster is ((r + 1)/m)^β − (r/m)^β with β = (γ − 2)/(γ − 1). So an end is drawn as r = ⌊m u^(1/β)⌋
from one uniform number, without a table of nodes.
"""

from dataclasses import dataclass

import numpy as np

from snmf_dist.planted.shuffling import Shuffle

BLOCK_EDGES = 1 << 19  # edges in a file
BLOCK_NODES = 1 << 20  # nodes whose clusters are written at a time
EDGES = 2  # what a stream of random numbers is for


@dataclass(frozen=True)
class BlockModel:
    """n nodes in K clusters, and the edges between them; see `generate` for the settings."""

    n: int
    k: int
    seed: int
    shares: tuple[float, ...]
    degree: float
    exponent: float
    mixing: float
    shuffle: bool

    @property
    def n_edges(self) -> int:
        """Number of edges that are drawn, loops included."""
        return max(round(self.n * self.degree / 2), 1)

    @property
    def blocks(self) -> int:
        """Number of blocks of edges."""
        return -(-self.n_edges // BLOCK_EDGES)

    @property
    def starts(self) -> np.ndarray:
        """Where each cluster begins, and where the last one ends, before nodes are shuffled, (K + 1,)."""
        return np.round(np.append(0, np.cumsum(self.shares)) * self.n).astype(np.int64)

    @property
    def numbers(self) -> Shuffle | None:
        """The node number of each place; None leaves the clusters one after the other."""
        return Shuffle(self.n, self.seed) if self.shuffle else None

    def block(self, b: int) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the edges of block `b`, the smaller first; without loops, but an edge may come again."""
        random = np.random.default_rng((self.seed, EDGES, b))
        count = min(BLOCK_EDGES, self.n_edges - b * BLOCK_EDGES)
        first = self._clusters(random.random(count))
        # both clusters are drawn with one law, so that the mean degree is the same in each; some meet by chance
        sizes = np.diff(self.starts) / self.n
        apart = 1 - float(np.sum(sizes**2))
        leaves = random.random(count) < (self.mixing / apart if apart else 0.0)
        second = np.where(leaves, self._clusters(random.random(count)), first)
        ends = [self._nodes(random.random(count), clusters) for clusters in (first, second)]
        low, high = np.minimum(*ends), np.maximum(*ends)
        kept = low != high
        return low[kept], high[kept]

    def labels(self, start: int, stop: int) -> np.ndarray:
        """The cluster of each node from `start` to `stop`, (stop − start,)."""
        places = np.arange(start, stop)
        places = places if self.numbers is None else self.numbers.inverse(places)
        return (np.searchsorted(self.starts, places, side="right") - 1).astype(np.int32)

    def _clusters(self, chance: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.starts[1:-1], chance * self.n, side="right")

    def _nodes(self, chance: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        sizes = np.diff(self.starts)[clusters]
        beta = 1.0 if np.isinf(self.exponent) else (self.exponent - 2) / (self.exponent - 1)
        rank = np.minimum((sizes * chance ** (1 / beta)).astype(np.int64), sizes - 1)
        places = self.starts[clusters] + rank
        return places if self.numbers is None else self.numbers(places)
