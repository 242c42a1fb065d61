"""A random order of 0, 1, …, n − 1 that is computed for each number by itself and never held."""

from dataclasses import dataclass

import numpy as np

FEISTEL_ROUNDS = 6
STEP = 0x9E3779B97F4A7C15  # of splitmix64, between its states
MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # its two factors


def scrambled(values: np.ndarray) -> np.ndarray:
    """Mix the bits of whole numbers as splitmix64 does (Steele, Lea, Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * MIX[0]
    values = (values ^ (values >> np.uint64(27))) * MIX[1]
    return values ^ (values >> np.uint64(31))


@dataclass(frozen=True)
class Shuffle:
    """A permutation of 0, 1, …, n − 1, and its inverse.

    A Feistel network permutes the numbers of an even number of bits; those that leave the range go through it
    again until they are back.

    Attributes
    ----------
    n : int
        How many numbers.
    seed : int
        Seed that decides which permutation.

    Examples
    --------
    >>> shuffle = Shuffle(10, seed=0)
    >>> sorted(shuffle(np.arange(10)).tolist()) == list(range(10))
    True
    >>> shuffle.inverse(shuffle(np.arange(10))).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    n: int
    seed: int

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        """Where each number goes."""
        return self._walk(numbers, range(FEISTEL_ROUNDS))

    def inverse(self, numbers: np.ndarray) -> np.ndarray:
        """Where each number comes from."""
        return self._walk(numbers, range(FEISTEL_ROUNDS - 1, -1, -1))

    def _walk(self, numbers: np.ndarray, rounds: range) -> np.ndarray:
        found = self._network(np.asarray(numbers).astype(np.uint64), rounds)
        outside = np.flatnonzero(found >= self.n)
        while len(outside):
            found[outside] = self._network(found[outside], rounds)
            outside = outside[found[outside] >= self.n]
        return found.astype(np.int64)

    def _network(self, numbers: np.ndarray, rounds: range) -> np.ndarray:
        half = np.uint64(max(-(-(self.n - 1).bit_length() // 2), 1))
        mask = (np.uint64(1) << half) - np.uint64(1)
        forward = rounds.step > 0
        left, right = numbers >> half, numbers & mask
        for i in rounds:
            key = np.uint64((self.seed * FEISTEL_ROUNDS + i + 1) * STEP % 2**64)
            if forward:
                left, right = right, left ^ (scrambled(right ^ key) & mask)
            else:
                left, right = right ^ (scrambled(left ^ key) & mask), left
        return (left << half) | right
