"""Loops over the entries of matrices of the same shape, made from a formula.

Loops that numba compiles are not made of vectors where what is read may be what is written. `by_entry` loads
vectors, applies the formula to them, and stores the results.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from snmf_dist.solve.kernels.simd import INT, Panel, address_of, constant, loop, open_arrays


class Operand:
    """A number in a formula of `by_entry`, which may be added, subtracted and multiplied."""

    def __init__(self, b: Any, vector: Any) -> None:
        self.b, self.vector = b, vector

    def _with(self, other: Any, name: str) -> "Operand":
        return Operand(self.b, getattr(self.b, name)(self.vector, other.vector, flags=("contract",)))

    def __add__(self, other: "Operand") -> "Operand":
        return self._with(other, "fadd")

    def __sub__(self, other: "Operand") -> "Operand":
        return self._with(other, "fsub")

    def __mul__(self, other: "Operand") -> "Operand":
        return self._with(other, "fmul")

    @property
    def squared(self) -> "Operand":
        """x²."""
        return self * self

    @property
    def zero(self) -> "Operand":
        """0."""
        return Operand(self.b, ir.Constant(self.vector.type, [0.0] * self.vector.type.count))

    @property
    def positive(self) -> "Operand":
        """[x]₊; NaN stays NaN."""
        below = self.b.fcmp_ordered("<", self.vector, self.zero.vector)
        return Operand(self.b, self.b.select(below, self.zero.vector, self.vector))


Formula = tuple[tuple[Operand, ...], tuple[Operand, ...]]  # what is written, and what is added up


def _in_one_row(b: Any, matrices: list[Any], size: int) -> tuple[Any, Any]:
    """Return the rows and columns of matrices of the same shape; one long row where none has gaps between rows."""
    rows, width = (b.extract_value(matrices[0].shape, axis) for axis in (0, 1))
    pitch = b.mul(width, constant(size))
    gaps = [b.xor(b.extract_value(one.strides, 0), pitch) for one in matrices]
    close = b.icmp_signed("==", reduce(b.or_, gaps), constant(0))
    return b.select(close, constant(1), rows), b.select(close, b.mul(rows, width), width)


def by_entry(formula: Callable[..., Formula]) -> Any:
    """Make a loop over the entries of matrices of the same shape.

    Lane l of the sums takes entries l, l + lanes, l + 2·lanes, … of the matrix read row by row, also where rows
    have gaps between them: so a matrix that is some columns of a wider one gets the sums of a copy, bit for bit.

    Parameters
    ----------
    formula : callable
        The function of one `Operand` for each matrix that is read and one for each scalar. It returns the values
        to write and the values to add up.

    Returns
    -------
    intrinsic
        ``f(read, scalars, written, sums)``, whose arguments are tuples of matrices, of numbers and of matrices,
        and a float64 vector that the sums over all entries are added to. A matrix may be both read and written.
        The attribute `formula` is the formula.
    """

    @intrinsic
    def over_entries(context, read, scalars, written, sums):  # type: ignore[no-untyped-def]
        signature = types.void(read, scalars, written, sums)

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            read, scalars, written = (cgutils.unpack_tuple(b, one) for one in arguments[:3])
            kinds = [kind.types for kind in signature.args[:3]]
            given, out = open_arrays(context, b, kinds[0], read), open_arrays(context, b, kinds[2], written)
            totals = context.make_array(signature.args[3])(context, b, arguments[3])
            number, entry = kinds[0][0].dtype, given[0].data.type.pointee
            size = number.bitwidth // 8
            rows, width = _in_one_row(b, [*given, *out], size)
            whole = Panel(b, entry, size, 1)
            pairs = zip(scalars, kinds[1], strict=True)
            fixed = [Operand(b, whole.spread(context.cast(b, value, kind, number))) for value, kind in pairs]
            _, terms = formula(*(Operand(b, whole.zero) for _ in given), *fixed)  # to count them
            added = [cgutils.alloca_once_value(b, whole.zero) for _ in terms]

            def step(i: Any, j: Any, panel: Panel) -> None:
                values = [Operand(b, *panel.load(address_of(b, one, i, j, size))) for one in given]
                results, terms = formula(*values, *fixed)
                for one, result in zip(out, results, strict=True):
                    panel.store([result.vector], address_of(b, one, i, j, size))
                for total, term in zip(added, terms, strict=True):
                    b.store(b.fadd(b.load(total), term.vector, flags=("contract",)), total)

            with loop(b, constant(0), rows) as (i, _):
                # columns that complete the vector that the row before has begun
                head = b.and_(b.neg(b.mul(i, width)), constant(whole.lanes - 1))
                with b.if_then(b.icmp_signed(">", head, constant(0))):
                    j = b.sub(head, constant(whole.lanes))
                    step(i, j, Panel(b, entry, size, 1, b.sub(width, j), b.neg(j)))
                inside = b.add(head, b.and_(b.sub(width, head), constant(-whole.lanes)))
                tail = b.select(b.icmp_signed("<", inside, head), head, inside)
                with loop(b, head, tail, whole.lanes) as (j, _):
                    step(i, j, whole)
                with b.if_then(b.icmp_signed("<", tail, width)):
                    step(i, tail, Panel(b, entry, size, 1, b.sub(width, tail)))
            for s, total in enumerate(added):
                lanes = [b.extract_element(b.load(total), ir.Constant(INT, lane)) for lane in range(whole.lanes)]
                found = context.cast(b, reduce(b.fadd, lanes), number, types.float64)
                place = b.gep(totals.data, [constant(s)])
                b.store(b.fadd(b.load(place), found), place)
            return context.get_dummy_value()

        return signature, generate

    made: Any = over_entries
    made.formula = formula
    return made
