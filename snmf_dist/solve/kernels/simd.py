"""Products in vector registers: `add_product` is C += S · B for a sparse S, `times` is C = S · B for a dense one.

Loops that numba compiles keep sums in memory and wait for each row of B. Here sums stay in registers, and rows of
B are prefetched. The terms of an entry of C are added in an order that depends on S alone, so a column gets the
same bits whatever columns stand beside it. All matrices have contiguous rows. Only this file and `entrywise` write
LLVM instructions.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from snmf_dist.engine.halo import SPARE

# entries of S between the prefetch of a row of B and its use; 16 are a tenth slower on a million rows, 64 as fast
PREFETCH = 48
assert PREFETCH <= SPARE, "a kernel would read beyond the indices"
VECTOR = 32  # bytes
PANEL = 6  # vectors of a row of C that are in registers at a time
SUMS = 12  # vectors of sums that there are registers for
AT_ONCE = 4  # rows of a dense S that share what is loaded of B, at most
LINE = 64  # bytes of a cache line

LONG, INT, BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8)


def constant(value: int) -> Any:
    """Return a 64-bit integer constant."""
    return ir.Constant(LONG, value)


def open_arrays(context: Any, b: Any, kinds: Any, values: Any) -> list[Any]:
    """Return the arguments, each array as a structure with its data, shape and strides."""
    pairs = zip(kinds, values, strict=True)
    return [context.make_array(k)(context, b, v) if isinstance(k, types.Array) else v for k, v in pairs]


def address_of(b: Any, array: Any, row: Any, column: Any, size: int) -> Any:
    """Return the address of an entry as a number."""
    offset = b.add(b.mul(row, b.extract_value(array.strides, 0)), b.mul(column, constant(size)))
    return b.add(b.ptrtoint(array.data, LONG), offset)


class Panel:
    """Some adjacent columns of a row, as vectors.

    The last vector ends where the columns end, and may overlap the one before it: what stands in both is computed
    twice, to the same numbers. A single vector is masked instead, which is slower, a masked store by far.

    Parameters
    ----------
    b : IRBuilder
        The builder that writes the instructions.
    number : llvmlite type
        The type of an entry.
    size : int
        The bytes of an entry.
    vectors : int
        The number of vectors.
    width : value, optional
        The number of columns from the first lane to the end of the row; omitted, all vectors are whole.
    first : value, optional
        The first lane of a single masked vector that has a column; omitted, it is lane 0.
    """

    def __init__(self, b: Any, number: Any, size: int, vectors: int, width: Any = None, first: Any = None) -> None:
        self.b, self.size, self.vectors = b, size, vectors
        self.lanes = lanes = VECTOR // size
        self.kind = ir.VectorType(number, lanes)
        self.zero = ir.Constant(self.kind, [0.0] * lanes)
        self.pointer = self.kind.as_pointer()
        self.mask = None
        self.offsets = [constant(VECTOR * v) for v in range(vectors)]
        if width is None:
            return
        most = constant(vectors * lanes)
        columns = b.select(b.icmp_signed("<", width, most), width, most)
        end = b.mul(columns, constant(size))
        self.last_byte = b.sub(end, constant(1))
        if vectors > 1:
            self.offsets[-1] = b.sub(end, constant(VECTOR))
        else:
            counted = ir.Constant(ir.VectorType(LONG, lanes), list(range(lanes)))
            self.mask = b.icmp_signed("<", counted, self._in_all(width, counted.type))
            if first is not None:
                self.mask = b.and_(self.mask, b.icmp_signed(">=", counted, self._in_all(first, counted.type)))

    def _in_all(self, value: Any, kind: Any) -> Any:
        nothing = ir.Constant(kind, ir.Undefined)
        first = self.b.insert_element(nothing, value, ir.Constant(INT, 0))
        return self.b.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(INT, kind.count), [0] * kind.count))

    def spread(self, value: Any) -> Any:
        """Return a vector of equal numbers."""
        return self._in_all(value, self.kind)

    def _places(self, address: Any) -> list[Any]:
        return [self.b.inttoptr(self.b.add(address, offset), self.pointer) for offset in self.offsets]

    def _masked(self, name: str, result: Any, *values: Any) -> Any:
        """Call LLVM's masked load or store."""
        kind = ir.FunctionType(result, [value.type for value in values])
        full = f"llvm.masked.{name}.v{self.lanes}f{8 * self.size}.p0"
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, full), values)

    def load(self, address: Any) -> list[Any]:
        """Return the row at an address, with 0 where a masked vector has no column."""
        places, align = self._places(address), ir.Constant(INT, self.size)
        if self.mask is not None:
            return [self._masked("load", self.kind, *places, align, self.mask, self.zero)]
        return [self.b.load(place, align=self.size) for place in places]

    def store(self, row: Sequence[Any], address: Any) -> None:
        """Write a row to an address."""
        places, align = self._places(address), ir.Constant(INT, self.size)
        if self.mask is not None:
            self._masked("store", ir.VoidType(), *row, *places, align, self.mask)
            return
        for part, place in zip(row, places, strict=True):
            self.b.store(part, place, align=self.size)

    def new_sums(self, rows: int) -> list[list[Any]]:
        """Return registers for so many rows of sums."""
        return [[cgutils.alloca_once(self.b, self.kind) for _ in range(self.vectors)] for _ in range(rows)]

    def set(self, totals: list[Any], row: Sequence[Any]) -> None:
        """Set sums to a row."""
        for total, part in zip(totals, row, strict=True):
            self.b.store(part, total)

    def add(self, totals: list[Any], value: Any, row: Sequence[Any]) -> None:
        """Add value · row."""
        factor = self.spread(value)
        for total, part in zip(totals, row, strict=True):
            term = self.b.fmul(factor, part, flags=("contract",))
            self.b.store(self.b.fadd(self.b.load(total), term, flags=("contract",)), total)

    def prefetch(self, address: Any) -> None:
        """Prefetch a row; an address that is not mapped does no harm."""
        b, pointer, size = self.b, BYTE.as_pointer(), VECTOR * self.vectors
        kind = ir.FunctionType(ir.VoidType(), [pointer, INT, INT, INT])
        request = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
        # its last byte may be in a line of its own; half a line before it is not worth a request
        for offset in [*map(constant, range(0, max(size - LINE // 2, 1), LINE)), self.last_byte]:
            place = b.inttoptr(b.add(address, offset), pointer)
            b.call(request, [place, *(ir.Constant(INT, value) for value in (0, 3, 1))])


def loop(b: Any, begin: Any, end: Any, step: int = 1) -> Any:
    """Write a loop from `begin` to `end`; a context manager that yields the counter."""
    return cgutils.for_range_slice(b, begin, end, constant(step), LONG)


def _by_panels(write: Callable[..., None]) -> Any:
    """Return a compiled f(given, C) that goes through C panel by panel; `write` writes the loops of one panel."""

    def of(vectors: int) -> Any:
        @intrinsic
        def panel(context, given, C, column):  # type: ignore[no-untyped-def]
            signature = types.void(given, C, column)

            def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
                several = cgutils.unpack_tuple(b, arguments[0])
                opened = open_arrays(context, b, signature.args[0].types, several)
                (out,) = open_arrays(context, b, signature.args[1:2], arguments[1:2])
                size, j = signature.args[1].dtype.bitwidth // 8, arguments[2]
                width = b.sub(b.extract_value(out.shape, 1), j)
                write(b, opened, out, j, Panel(b, out.data.type.pointee, size, vectors, width))
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


def _write_sparse(b: Any, given: list[Any], C: Any, j: Any, panel: Panel) -> None:
    at, first, columns, values, near, far = given
    cut, ours, theirs = b.extract_value(near.shape, 0), *(b.extract_value(one.strides, 0) for one in (near, far))
    pitch = b.select(b.icmp_signed(">", cut, constant(1)), ours, theirs)  # a single row may have any stride
    here = address_of(b, near, constant(0), j, panel.size)
    beyond = b.sub(address_of(b, far, constant(0), j, panel.size), b.mul(cut, pitch))  # halo rows: from `cut` on
    # Even and odd entries of a row have sums of their own: an addition takes longer than its turn. This is so in
    # panels of any size, that a column has the same bits in each.
    even, odd = panel.new_sums(2)

    def row_of_B(p: Any) -> Any:
        c = b.zext(b.load(b.gep(columns.data, [p])), LONG)
        return b.add(b.select(b.icmp_unsigned("<", c, cut), here, beyond), b.mul(c, pitch))

    def add_entry(p: Any, totals: list[Any]) -> None:
        panel.prefetch(row_of_B(b.add(p, constant(PREFETCH))))
        panel.add(totals, b.load(b.gep(values.data, [p])), panel.load(row_of_B(p)))

    with loop(b, constant(0), b.extract_value(C.shape, 0)) as (i, _):
        place, row = address_of(b, C, i, j, panel.size), b.add(first, i)
        begin, end = (b.load(b.gep(at.data, [where])) for where in (row, b.add(row, constant(1))))
        panel.set(even, panel.load(place))
        panel.set(odd, [panel.zero] * panel.vectors)
        middle = b.add(begin, b.and_(b.sub(end, begin), constant(-2)))
        with loop(b, begin, middle, 2) as (p, _):
            add_entry(p, even)
            add_entry(b.add(p, constant(1)), odd)
        with loop(b, middle, end) as (p, _):
            add_entry(p, even)
        panel.store([b.fadd(*map(b.load, pair)) for pair in zip(even, odd, strict=True)], place)


def _write_dense(b: Any, given: list[Any], C: Any, j: Any, panel: Panel) -> None:
    S, B = given
    count, inner = b.extract_value(C.shape, 0), b.extract_value(B.shape, 0)
    down, along = (b.extract_value(S.strides, axis) for axis in (0, 1))
    at_once = min(SUMS // panel.vectors, AT_ONCE)
    sums = panel.new_sums(at_once)

    def value(i: Any, p: Any) -> Any:
        place = b.add(b.ptrtoint(S.data, LONG), b.add(b.mul(i, down), b.mul(p, along)))
        return b.load(b.inttoptr(place, S.data.type))

    def some_rows(i: Any, rows: int) -> None:
        for totals in sums[:rows]:
            panel.set(totals, [panel.zero] * panel.vectors)
        with loop(b, constant(0), inner) as (p, _):
            row = panel.load(address_of(b, B, p, j, panel.size))
            for h, totals in enumerate(sums[:rows]):
                panel.add(totals, value(b.add(i, constant(h)), p), row)
        for h, totals in enumerate(sums[:rows]):
            panel.store(
                [b.load(total) for total in totals], address_of(b, C, b.add(i, constant(h)), j, panel.size)
            )

    middle = b.sub(count, b.urem(count, constant(at_once)))
    with loop(b, constant(0), middle, at_once) as (i, _):
        some_rows(i, at_once)
    with loop(b, middle, count) as (i, _):
        some_rows(i, 1)


_sparse, _dense = _by_panels(_write_sparse), _by_panels(_write_dense)


@njit(nogil=True)
def add_product(indptr, first, indices, data, own, halo, C):  # type: ignore[no-untyped-def]
    """C += S · B, for the rows of S from `first` on; B is `own` above `halo`.

    `indices` are uint32, and there are at least PREFETCH more of them than entries; their values do not matter.
    """
    _sparse((indptr, first, indices, data, own, halo), C)


@njit(nogil=True)
def times(S, B, C):  # type: ignore[no-untyped-def]
    """C = S · B, all dense; S may be a transpose."""
    _dense((S, B), C)
