"""Loops over the rows of a few matrices in vector registers: the inner loops of all that is fast here.

`add_product` is C += S · B for a sparse S, `times` C = S · B for a small dense one, and `by_entry` makes a loop of
a formula. Numba's own loops keep sums in memory, wait for each row of B, and are not made of vectors where what
is read may be what is written; here sums stay in registers, and rows of B needed soon are asked for in advance.
All matrices have contiguous rows. Alone in writing LLVM instructions.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from snmf_dist.halo import SPARE

# entries by which rows are asked for before they are used; 16 are a tenth slower on a million rows, 64 as fast
AHEAD = 48
assert AHEAD <= SPARE, "a kernel would look beyond the indices"
VECTOR = 32  # bytes
PANEL = 6  # vectors of a row of C that are in registers at a time
SUMS = 12  # vectors of sums that there are registers for
AT_ONCE = 4  # rows of a dense S that share what is loaded of B, at most
LINE = 64  # bytes of a cache line

_long, _int, _byte = ir.IntType(64), ir.IntType(32), ir.IntType(8)


def _number(value: int) -> Any:
    return ir.Constant(_long, value)


def _arrays(context: Any, b: Any, kinds: Any, values: Any) -> list[Any]:
    """Arguments with arrays opened, so that their data, shape and strides can be had."""
    pairs = zip(kinds, values, strict=True)
    return [context.make_array(k)(context, b, v) if isinstance(k, types.Array) else v for k, v in pairs]


def _address(b: Any, array: Any, row: Any, column: Any, size: int) -> Any:
    """Where a row goes on from a column."""
    offset = b.add(b.mul(row, b.extract_value(array.strides, 0)), b.mul(column, _number(size)))
    return b.add(b.ptrtoint(array.data, _long), offset)


class _Panel:
    """Some columns of rows, as vectors. The last one ends where the columns do, over part of the one before it.

    What stands in both is computed twice, to the same numbers. A vector that has none before it is masked instead:
    that is slower, a masked store by far.

    Parameters
    ----------
    b : IRBuilder
        What writes the instructions.
    number : llvmlite type
        Of an entry, of `size` bytes.
    vectors : int
        How many there are.
    width : value
        How many columns are left, these and more; None for whole vectors.
    """

    def __init__(self, b: Any, number: Any, size: int, vectors: int, width: Any = None) -> None:
        self.b, self.size, self.vectors = b, size, vectors
        self.lanes = lanes = VECTOR // size
        self.kind = ir.VectorType(number, lanes)
        self.zero = ir.Constant(self.kind, [0.0] * lanes)
        self.pointer = self.kind.as_pointer()
        self.mask = None
        self.offsets = [_number(VECTOR * v) for v in range(vectors)]
        if width is None:
            return
        most = _number(vectors * lanes)
        columns = b.select(b.icmp_signed("<", width, most), width, most)
        end = b.mul(columns, _number(size))
        self.last_byte = b.sub(end, _number(1))
        if vectors > 1:
            self.offsets[-1] = b.sub(end, _number(VECTOR))
        else:
            counted = ir.Constant(ir.VectorType(_long, lanes), list(range(lanes)))
            self.mask = b.icmp_signed("<", counted, self._in_all(width, counted.type))

    def _in_all(self, value: Any, kind: Any) -> Any:
        nothing = ir.Constant(kind, ir.Undefined)
        first = self.b.insert_element(nothing, value, ir.Constant(_int, 0))
        return self.b.shuffle_vector(
            first, nothing, ir.Constant(ir.VectorType(_int, kind.count), [0] * kind.count)
        )

    def spread(self, value: Any) -> Any:
        """A vector of equal numbers."""
        return self._in_all(value, self.kind)

    def _places(self, address: Any) -> list[Any]:
        return [self.b.inttoptr(self.b.add(address, offset), self.pointer) for offset in self.offsets]

    def _masked(self, name: str, result: Any, *values: Any) -> Any:
        """Call LLVM's masked load or store."""
        kind = ir.FunctionType(result, [value.type for value in values])
        full = f"llvm.masked.{name}.v{self.lanes}f{8 * self.size}.p0"
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, full), values)

    def load(self, address: Any) -> list[Any]:
        """The row at an address; 0 where a masked vector has no column."""
        places, align = self._places(address), ir.Constant(_int, self.size)
        if self.mask is not None:
            return [self._masked("load", self.kind, *places, align, self.mask, self.zero)]
        return [self.b.load(place, align=self.size) for place in places]

    def store(self, row: Sequence[Any], address: Any) -> None:
        """Write a row to an address."""
        places, align = self._places(address), ir.Constant(_int, self.size)
        if self.mask is not None:
            self._masked("store", ir.VoidType(), *row, *places, align, self.mask)
            return
        for part, place in zip(row, places, strict=True):
            self.b.store(part, place, align=self.size)

    def new_sums(self, rows: int) -> list[list[Any]]:
        """Room for rows of sums, in registers."""
        return [[cgutils.alloca_once(self.b, self.kind) for _ in range(self.vectors)] for _ in range(rows)]

    def set(self, totals: list[Any], row: Sequence[Any]) -> None:
        """Let sums be a row."""
        for total, part in zip(totals, row, strict=True):
            self.b.store(part, total)

    def add(self, totals: list[Any], value: Any, row: Sequence[Any]) -> None:
        """Add value · row."""
        factor = self.spread(value)
        for total, part in zip(totals, row, strict=True):
            term = self.b.fmul(factor, part, flags=("contract",))
            self.b.store(self.b.fadd(self.b.load(total), term, flags=("contract",)), total)

    def ask_for(self, address: Any) -> None:
        """Prefetch a row; an address that does not exist does no harm."""
        b, pointer, size = self.b, _byte.as_pointer(), VECTOR * self.vectors
        kind = ir.FunctionType(ir.VoidType(), [pointer, _int, _int, _int])
        prefetch = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
        # its last byte may be in a line of its own; half a line before it is not worth a request
        for offset in [*map(_number, range(0, max(size - LINE // 2, 1), LINE)), self.last_byte]:
            place = b.inttoptr(b.add(address, offset), pointer)
            b.call(prefetch, [place, *(ir.Constant(_int, value) for value in (0, 3, 1))])


def _loop(b: Any, begin: Any, end: Any, step: int = 1) -> Any:
    return cgutils.for_range_slice(b, begin, end, _number(step), _long)


def _by_panels(write: Callable[..., None]) -> Any:
    """A compiled f(given, C) that goes through C panel by panel; `write` writes the loops of one."""

    def of(vectors: int) -> Any:
        @intrinsic
        def panel(context, given, C, column):  # type: ignore[no-untyped-def]
            signature = types.void(given, C, column)

            def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
                several = cgutils.unpack_tuple(b, arguments[0])
                opened = _arrays(context, b, signature.args[0].types, several)
                (out,) = _arrays(context, b, signature.args[1:2], arguments[1:2])
                size, j = signature.args[1].dtype.bitwidth // 8, arguments[2]
                width = b.sub(b.extract_value(out.shape, 1), j)
                write(b, opened, out, j, _Panel(b, out.data.type.pointee, size, vectors, width))
                return context.get_dummy_value()

            return signature, generate

        return panel

    one, two, three, four, five, six = (of(vectors) for vectors in range(1, PANEL + 1))

    @njit(nogil=True)
    def over_panels(given, C):  # type: ignore[no-untyped-def]
        lanes = VECTOR // C.itemsize
        for j in range(0, C.shape[1], PANEL * lanes):
            vectors = min(-(-(C.shape[1] - j) // lanes), PANEL)
            if vectors == 1:
                one(given, C, j)
            elif vectors == 2:
                two(given, C, j)
            elif vectors == 3:
                three(given, C, j)
            elif vectors == 4:
                four(given, C, j)
            elif vectors == 5:
                five(given, C, j)
            else:
                six(given, C, j)

    return over_panels


def _write_sparse(b: Any, given: list[Any], C: Any, j: Any, panel: _Panel) -> None:
    at, first, columns, values, near, far = given
    pitch, cut = b.extract_value(near.strides, 0), b.extract_value(near.shape, 0)
    here = _address(b, near, _number(0), j, panel.size)
    beyond = b.sub(_address(b, far, _number(0), j, panel.size), b.mul(cut, pitch))  # halo rows: from `cut` on
    # two rows of sums where there are registers for them: an addition takes longer than its turn
    sums = panel.new_sums(2 if panel.vectors < 5 else 1)

    def row_of_B(p: Any) -> Any:
        c = b.zext(b.load(b.gep(columns.data, [p])), _long)
        return b.add(b.select(b.icmp_unsigned("<", c, cut), here, beyond), b.mul(c, pitch))

    def add_entry(p: Any, totals: list[Any]) -> None:
        panel.ask_for(row_of_B(b.add(p, _number(AHEAD))))
        panel.add(totals, b.load(b.gep(values.data, [p])), panel.load(row_of_B(p)))

    with _loop(b, _number(0), b.extract_value(C.shape, 0)) as (i, _):
        place, row = _address(b, C, i, j, panel.size), b.add(first, i)
        begin, end = (b.load(b.gep(at.data, [where])) for where in (row, b.add(row, _number(1))))
        panel.set(sums[0], panel.load(place))
        if len(sums) == 2:
            panel.set(sums[1], [panel.zero] * panel.vectors)
            middle = b.add(begin, b.and_(b.sub(end, begin), _number(-2)))
            with _loop(b, begin, middle, 2) as (p, _):
                add_entry(p, sums[0])
                add_entry(b.add(p, _number(1)), sums[1])
            begin = middle
        with _loop(b, begin, end) as (p, _):
            add_entry(p, sums[0])
        panel.store([reduce(b.fadd, map(b.load, one)) for one in zip(*sums, strict=True)], place)


def _write_dense(b: Any, given: list[Any], C: Any, j: Any, panel: _Panel) -> None:
    S, B = given
    count, inner = b.extract_value(C.shape, 0), b.extract_value(B.shape, 0)
    down, along = (b.extract_value(S.strides, axis) for axis in (0, 1))
    at_once = min(SUMS // panel.vectors, AT_ONCE)
    sums = panel.new_sums(at_once)

    def value(i: Any, p: Any) -> Any:
        place = b.add(b.ptrtoint(S.data, _long), b.add(b.mul(i, down), b.mul(p, along)))
        return b.load(b.inttoptr(place, S.data.type))

    def some_rows(i: Any, rows: int) -> None:
        for totals in sums[:rows]:
            panel.set(totals, [panel.zero] * panel.vectors)
        with _loop(b, _number(0), inner) as (p, _):
            row = panel.load(_address(b, B, p, j, panel.size))
            for h, totals in enumerate(sums[:rows]):
                panel.add(totals, value(b.add(i, _number(h)), p), row)
        for h, totals in enumerate(sums[:rows]):
            panel.store([b.load(total) for total in totals], _address(b, C, b.add(i, _number(h)), j, panel.size))

    middle = b.sub(count, b.urem(count, _number(at_once)))
    with _loop(b, _number(0), middle, at_once) as (i, _):
        some_rows(i, at_once)
    with _loop(b, middle, count) as (i, _):
        some_rows(i, 1)


_sparse, _dense = _by_panels(_write_sparse), _by_panels(_write_dense)


@njit(nogil=True)
def add_product(indptr, first, indices, data, own, halo, C):  # type: ignore[no-untyped-def]
    """C += rows first, first + 1, ... of S times B = [own | halo], one row above the other.

    `indices` are uint32 and AHEAD more than there are entries; what they are beyond does not matter.
    """
    _sparse((indptr, first, indices, data, own, halo), C)


@njit(nogil=True)
def times(S, B, C):  # type: ignore[no-untyped-def]
    """C = S · B, all dense; S may be a transpose."""
    _dense((S, B), C)


class Value:
    """A number of each entry in a formula of `by_entry`: it is added, subtracted and multiplied as numbers are."""

    def __init__(self, b: Any, vector: Any) -> None:
        self.b, self.vector = b, vector

    def _with(self, other: Any, name: str) -> "Value":
        return Value(self.b, getattr(self.b, name)(self.vector, other.vector, flags=("contract",)))

    def __add__(self, other: "Value") -> "Value":
        return self._with(other, "fadd")

    def __sub__(self, other: "Value") -> "Value":
        return self._with(other, "fsub")

    def __mul__(self, other: "Value") -> "Value":
        return self._with(other, "fmul")

    @property
    def squared(self) -> "Value":
        """Times itself."""
        return self * self

    @property
    def zero(self) -> "Value":
        """0."""
        return Value(self.b, ir.Constant(self.vector.type, [0.0] * self.vector.type.count))

    @property
    def positive(self) -> "Value":
        """[·]₊; what is not a number stays so."""
        below = self.b.fcmp_ordered("<", self.vector, self.zero.vector)
        return Value(self.b, self.b.select(below, self.zero.vector, self.vector))


Formula = tuple[tuple[Value, ...], tuple[Value, ...]]  # what is written, and what is added up


def _in_one_row(b: Any, matrices: list[Any], size: int) -> tuple[Any, Any]:
    """Rows and columns of matrices of the same shape: one long row where all lie in one piece."""
    rows, width = (b.extract_value(matrices[0].shape, axis) for axis in (0, 1))
    pitch = b.mul(width, _number(size))
    gaps = [b.xor(b.extract_value(one.strides, 0), pitch) for one in matrices]
    close = b.icmp_signed("==", reduce(b.or_, gaps), _number(0))
    return b.select(close, _number(1), rows), b.select(close, b.mul(rows, width), width)


def by_entry(formula: Callable[..., Formula]) -> Any:
    """Make a loop over the entries of matrices of the same shape.

    Parameters
    ----------
    formula : callable
        Of a `Value` for each matrix that is read and for each scalar: the values that are written, and those
        that are added up.

    Returns
    -------
    intrinsic
        ``f(read, scalars, written, sums)``: tuples of matrices, of numbers and of matrices, and a float64 vector
        that the sums over all entries are added to. What is written may be what is read. The formula is its
        attribute.
    """

    @intrinsic
    def loop(context, read, scalars, written, sums):  # type: ignore[no-untyped-def]
        signature = types.void(read, scalars, written, sums)

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            read, scalars, written = (cgutils.unpack_tuple(b, one) for one in arguments[:3])
            kinds = [kind.types for kind in signature.args[:3]]
            given, out = _arrays(context, b, kinds[0], read), _arrays(context, b, kinds[2], written)
            totals = context.make_array(signature.args[3])(context, b, arguments[3])
            number, entry = kinds[0][0].dtype, given[0].data.type.pointee
            size = number.bitwidth // 8
            rows, width = _in_one_row(b, [*given, *out], size)
            whole = _Panel(b, entry, size, 1)
            middle = b.and_(width, _number(-whole.lanes))
            rest = _Panel(b, entry, size, 1, b.sub(width, middle))
            pairs = zip(scalars, kinds[1], strict=True)
            fixed = [Value(b, whole.spread(context.cast(b, value, kind, number))) for value, kind in pairs]
            _, terms = formula(*(Value(b, whole.zero) for _ in given), *fixed)  # to count them
            added = [cgutils.alloca_once_value(b, whole.zero) for _ in terms]

            def step(i: Any, j: Any, panel: _Panel) -> None:
                values = [Value(b, *panel.load(_address(b, one, i, j, size))) for one in given]
                results, terms = formula(*values, *fixed)
                for one, result in zip(out, results, strict=True):
                    panel.store([result.vector], _address(b, one, i, j, size))
                for total, term in zip(added, terms, strict=True):
                    b.store(b.fadd(b.load(total), term.vector, flags=("contract",)), total)

            with _loop(b, _number(0), rows) as (i, _):
                with _loop(b, _number(0), middle, whole.lanes) as (j, _):
                    step(i, j, whole)
                with b.if_then(b.icmp_signed("<", middle, width)):
                    step(i, middle, rest)
            for s, total in enumerate(added):
                lanes = [b.extract_element(b.load(total), ir.Constant(_int, lane)) for lane in range(whole.lanes)]
                found = context.cast(b, reduce(b.fadd, lanes), number, types.float64)
                place = b.gep(totals.data, [_number(s)])
                b.store(b.fadd(b.load(place), found), place)
            return context.get_dummy_value()

        return signature, generate

    made: Any = loop
    made.formula = formula
    return made
