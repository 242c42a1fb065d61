"""Rows and Graph: what `local` and `cluster` implement, and all that a solver knows of where rows are.

A matrix with n rows is a `Rows`; the graph A is a `Graph`. A solver never looks into either: it calls the methods
of A, which are the words that carry all distribution. In one process a word does its work at once, slice by slice
on threads; on a cluster it describes tasks, one or two a block, and `begin` sends them. So the text of a solver
runs in memory, from disk and on a cluster.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

State = TypeVar("State", bound=tuple[Any, ...])
Value = (
    Any  # a small value: a number, an array of few entries, a tuple of these; on a cluster it may not be known yet
)


class Rows(Protocol):
    """A matrix with n rows, in memory, on disk or on a cluster."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""

    @property
    def dtype(self) -> np.dtype:
        """The type of the entries."""

    @property
    def sums(self) -> Value:
        """What the sweep that made these rows added up, or None if no sweep made them."""

    @property
    def array(self) -> Any:
        """The rows as a `dask.array.Array` in row blocks, for those who look at them from outside."""


class Step(NamedTuple):
    """A state and the numbers of the step that leads to it; on a cluster both may still be under way."""

    state: Any
    numbers: Any


class Graph(Protocol):
    """The graph A in row blocks, and the words for work on rows that are aligned with them."""

    @property
    def shape(self) -> tuple[int, int]:
        """n and n."""

    @property
    def dtype(self) -> np.dtype:
        """The type of the entries."""

    @property
    def ahead(self) -> int:
        """How many steps of a solver may be described before the first one is waited for; 0 if none need be."""

    @property
    def bounds(self) -> np.ndarray:
        """Where the row blocks begin and end, (P + 1,)."""

    @property
    def write_rows(self) -> int:
        """Rows of the blocks in which `write` writes."""

    def rows(self, read: Callable[..., np.ndarray], width: int, *, dtype: Any, **scalars: Any) -> Rows:
        """Rows start to stop of a new matrix are ``read(start, stop, **scalars)``."""

    def rows_from(self, array: Any, *, dtype: Any, order: np.ndarray | None = None) -> Rows:
        """The rows of a NumPy or Dask array; with `order`, row i is row order[i] of it."""

    def map(
        self,
        f: Callable[..., np.ndarray],
        *rows: Rows,
        width: int | None = None,
        dtype: Any = None,
        **scalars: Any,
    ) -> Rows:
        """``f(*row blocks, **scalars)`` for each row block.

        `width` and `dtype` are the columns and the type of the result, if they are not those of the first rows.
        """

    def sum(self, f: Callable[..., Any], *rows: Rows, **scalars: Any) -> Value:
        """The sum of ``f(*row blocks, **scalars)`` over the row blocks, in a tree of fixed shape."""

    def sum_entries(self, f: Callable[..., Any]) -> Value:
        """The sum of ``f(block of A)`` over the row blocks of A."""

    def sweep(
        self,
        f: Callable[..., Any],
        B: Rows,
        *,
        rows: Mapping[str, Rows],
        makes: Mapping[str, int],
        over: Mapping[str, str] | None = None,
        adds_up: bool = True,
        **scalars: Any,
    ) -> tuple[Any, ...]:
        """Go over A once, and make rows from A · B and from aligned rows.

        Parameters
        ----------
        f : callable
            Called as ``f(block, own, halo, **row blocks, out=[…], **scalars)`` for each row block. It writes to
            `out`, and returns a value or a tuple of values to be added up. `block` are rows of A, whose columns
            are numbered as the rows of `own` above those of `halo`.
        B : Rows
            The matrix that A is multiplied with.
        rows : mapping
            The aligned rows, by the names that `f` gives them.
        makes : mapping
            The name and the number of columns of each result, in the order of `out`.
        over : mapping, optional
            For a result the name of the aligned rows whose memory it may be written over. Those are not to be used
            afterwards.
        adds_up : bool, default True
            Whether the values that `f` returns are added up. The sum is then ``sums`` of each result.

        Returns
        -------
        tuple of Rows
            The results, in the order of `makes`.
        """

    def sweep_sum(self, f: Callable[..., Any], B: Rows, *, rows: Mapping[str, Rows], **scalars: Any) -> Value:
        """Go over A once, and add up what ``f(block, own, halo, **row blocks, out=[], **scalars)`` returns."""

    def central(self, f: Callable[..., Any], *values: Value, **scalars: Any) -> Value:
        """``f(*values, **scalars)`` of small values, computed once for all rows."""

    def begin(self, *steps: tuple[Any, Any]) -> list[Step]:
        """Start all the work described, at once.

        Parameters
        ----------
        *steps : pairs of a tuple of rows and of a small value or a mapping of small values
            What is to be kept, and what `finish` will wait for.
        """

    def finish(self, numbers: Any) -> Any:
        """Wait for small values that were begun: one, or a mapping of them."""

    def settle(self, state: State, numbers: Any) -> tuple[State, Any]:
        """Start all the work described, keep the state where it is made, and wait for the numbers."""

    def hold(self, rows: Rows) -> Rows:
        """Start the work on these rows now, and keep them: many steps will use them."""

    def fetch(self, rows: Rows, index: np.ndarray | None = None) -> np.ndarray:
        """Bring some rows, or all of a matrix of few columns, into this process."""

    def reorder(self, rows: Rows, index: np.ndarray) -> Any:
        """Row i of the result, a Dask array, is row index[i]."""

    def write(self, rows: Rows, write: Callable[[int, np.ndarray], int]) -> Value:
        """Call ``write(start, rows)`` for blocks of `write_rows` rows; the list of what these return, in order."""

    def cut_lineage(self, rows: Iterable[Any]) -> None:
        """Forget the work that made these rows, if any is remembered; they are there."""

    def more_workers(self) -> bool:
        """Whether workers have joined that the run could use if it were read anew."""

    def ready(self, numbers: Any) -> bool:
        """Whether `finish` would return at once."""

    def close(self) -> None:
        """Give up what the run holds but for its results."""


def rebuild(state: State, rows: Sequence[Any]) -> State:
    """A tuple, named or not, of the same kind as `state`."""
    return type(state)(*rows) if hasattr(state, "_fields") else type(state)(rows)
