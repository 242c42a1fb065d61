"""Which runs a scaling study has, and in which order: small ones first, so that an early end leaves an answer."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from snmf_dist.errors import InputError
from snmf_dist.validation import positive_number, whole_number


@dataclass(frozen=True)
class Point:
    """One run of a scaling study.

    Attributes
    ----------
    rows : int
        Rows of the graph.
    degree : float
        Mean number of edges of a row, which is that of its entries.
    k : int
        Number of clusters.
    workers : int
        Worker processes; 0 for threads of one process.
    repeat : int
        From 0: which of several equal runs it is.
    """

    rows: int
    degree: float
    k: int
    workers: int
    repeat: int

    @property
    def work(self) -> float:
        """What an iteration costs, but for a factor: the entries times K."""
        return self.rows * self.degree * self.k

    @property
    def graph(self) -> str:
        """The name of its graph."""
        return f"rows-{self.rows}-degree-{self.degree:g}-k-{self.k}"

    def run(self, seed: int) -> dict[str, Any]:
        """What the study writes down of it, as ``study.json`` has it."""
        settings = {**asdict(self), "seed": seed}
        text = json.dumps(["scaling", settings], sort_keys=True)
        run_id = hashlib.sha256(text.encode()).hexdigest()[:16]
        return {"run_id": run_id, "graph": self.graph, "settings": settings}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Point":
        """The point that `run` wrote down."""
        return cls(**{name: settings[name] for name in cls.__dataclass_fields__})


def doublings(first: int, last: int) -> list[int]:
    """Sizes from the first to the last, each twice the one before.

    Examples
    --------
    >>> doublings(2000, 10_000)
    [2000, 4000, 8000]
    """
    if last < first:
        raise InputError(f"rows go from {first} to {last}; expected the smaller number first")
    return [first << i for i in range(int(math.log2(last / first) + 1e-9) + 1)]


def make_grid(
    rows: Iterable[int], degrees: Iterable[float], ks: Iterable[int], workers: Iterable[int], repeats: int
) -> list[Point]:
    """All combinations, checked, in the order of `in_rounds`."""
    sizes = sorted({whole_number("rows", n, 2) for n in rows})
    widths = sorted({whole_number("ks", k, 1) for k in ks})
    places = sorted({whole_number("workers", w, 0) for w in workers})
    means = sorted({positive_number("degrees", degree) for degree in degrees})
    whole_number("repeats", repeats, 1)
    for name, given in {"rows": sizes, "ks": widths, "workers": places, "degrees": means}.items():
        if not given:
            raise InputError(f"{name} is empty; give at least one value")
    if widths[-1] * 10 > sizes[0]:
        raise InputError(
            f"the smallest graph has {sizes[0]} rows, which is too few for k={widths[-1]}; begin with at least "
            f"{10 * widths[-1]}"
        )
    if means[-1] >= sizes[0]:
        raise InputError(f"a row of {sizes[0]} cannot have {means[-1]:g} edges; begin with more rows")
    points = [
        Point(n, degree, k, w, repeat)
        for n in sizes
        for degree in means
        for k in widths
        for w in places
        for repeat in range(repeats)
    ]
    return in_rounds(points)


def in_rounds(points: Sequence[Point]) -> list[Point]:
    """Points in rounds, each of which may take about twice as long a run as the one before.

    A repeat counts as if it doubled the work: so small sizes have several repeats early, and large ones, which
    take long, have their first one before small ones have their last. Within a round runs on as many workers
    stand together, since it takes seconds to start them.

    Examples
    --------
    >>> points = [Point(n, 10, 4, 1, repeat) for n in (1000, 2000) for repeat in range(2)]
    >>> [(point.rows, point.repeat) for point in in_rounds(points)]
    [(1000, 0), (1000, 1), (2000, 0), (2000, 1)]
    """
    least = min(point.work for point in points)

    def place(point: Point) -> tuple[Any, ...]:
        stage = round(math.log2(point.work / least)) + point.repeat
        return stage, point.workers, point.work, point.rows, point.k, point.repeat

    return sorted(points, key=place)
