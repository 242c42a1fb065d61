"""C += S · B for a dense B with few columns, in vector registers: the inner loop of all that is fast here.

`add_product` has a sparse S, rows of A; `add_dense_product` a small dense one. Numba's own loops keep the sums in
memory and wait for each row of B; here a row of C stays in registers while its entries are gone through
once, and rows of B needed soon are asked for in advance. Alone in writing LLVM instructions.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from snmf_dist.halo import SPARE

AHEAD = SPARE  # entries by which rows are asked for before they are used: 8.8 -> 5.4 ns an entry on 1M rows
VECTOR = 32  # bytes
PANEL = 6  # vectors of a row of C that are in registers at a time
LINE = 64  # bytes of a cache line

_long, _int, _byte = ir.IntType(64), ir.IntType(32), ir.IntType(8)


class _Rows(NamedTuple):
    """How the entries of S are found; all functions write instructions."""

    count: Any  # of rows
    entries: Callable[[Any], tuple[Any, Any]]  # row -> its first entry, and one past its last
    value: Callable[[Any], Any]  # entry -> its number
    row_of_B: Callable[[Any], Any]  # entry -> address of its row of B
    ahead: bool  # whether to ask for rows in advance


def _number(value: int) -> Any:
    return ir.Constant(_long, value)


def _arrays(context: Any, b: Any, kinds: Any, values: Any) -> list[Any]:
    """Arguments with arrays opened, so that their data, shape and strides can be had."""
    pairs = zip(kinds, values, strict=True)
    return [context.make_array(k)(context, b, v) if isinstance(k, types.Array) else v for k, v in pairs]


def _address(b: Any, array: Any, offset: Any) -> Any:
    return b.add(b.ptrtoint(array.data, _long), offset)


def _write_panel(b: Any, rows: _Rows, C: Any, column: Any, vectors: int, size: int) -> None:
    """Write the loops for columns `column` on, `vectors` vectors of them, the last perhaps in part."""
    lanes = VECTOR // size
    vector = ir.VectorType(C.data.type.pointee, lanes)
    load, store = _access(b, C, column, vector, vectors, size)
    # two rows of sums where there are registers for them: an addition takes longer than its turn
    sums = [[cgutils.alloca_once(b, vector) for _ in range(vectors)] for _ in range(2 if vectors < 5 else 1)]

    def add_entry(p: Any, totals: list[Any]) -> None:
        if rows.ahead:
            _ask_for(b, rows.row_of_B(b.add(p, _number(AHEAD))), VECTOR * vectors)
        first = b.insert_element(ir.Constant(vector, ir.Undefined), rows.value(p), ir.Constant(_int, 0))
        in_all = ir.Constant(ir.VectorType(_int, lanes), [0] * lanes)
        value = b.shuffle_vector(first, ir.Constant(vector, ir.Undefined), in_all)
        for total, part in zip(totals, load(rows.row_of_B(p)), strict=True):
            term = b.fmul(value, part, flags=("contract",))
            b.store(b.fadd(b.load(total), term, flags=("contract",)), total)

    top = _address(b, C, b.mul(column, _number(size)))
    with cgutils.for_range_slice(b, _number(0), rows.count, _number(1), _long) as (i, _):
        place = b.add(top, b.mul(i, b.extract_value(C.strides, 0)))
        for total, row in zip(sums[0], load(place), strict=True):
            b.store(row, total)
        begin, end = rows.entries(i)
        if len(sums) == 2:
            for total in sums[1]:
                b.store(ir.Constant(vector, [0.0] * lanes), total)
            middle = b.add(begin, b.and_(b.sub(end, begin), _number(-2)))
            with cgutils.for_range_slice(b, begin, middle, _number(2), _long) as (p, _):
                add_entry(p, sums[0])
                add_entry(b.add(p, _number(1)), sums[1])
            begin = middle
        with cgutils.for_range_slice(b, begin, end, _number(1), _long) as (p, _):
            add_entry(p, sums[0])
        store([reduce(b.fadd, map(b.load, one)) for one in zip(*sums, strict=True)], place)


def _access(b: Any, C: Any, column: Any, vector: Any, vectors: int, size: int) -> tuple[Any, Any]:
    """Functions that load and store a row's vectors at an address; what the last lacks is left alone."""
    lanes, pointer = VECTOR // size, vector.as_pointer()
    flags = ir.VectorType(ir.IntType(1), lanes)
    width = b.sub(b.extract_value(C.shape, 1), b.add(column, _number((vectors - 1) * lanes)))
    mask = ir.Constant(flags, ir.Undefined)
    for lane in range(lanes):
        there = b.icmp_signed("<", _number(lane), width)
        mask = b.insert_element(mask, there, ir.Constant(_int, lane))
    name, align, zero = f"v{lanes}f{8 * size}.p0", ir.Constant(_int, size), ir.Constant(vector, [0.0] * lanes)
    reading = ir.FunctionType(vector, [pointer, _int, flags, vector])
    writing = ir.FunctionType(ir.VoidType(), [vector, pointer, _int, flags])
    read = cgutils.get_or_insert_function(b.module, reading, f"llvm.masked.load.{name}")
    write = cgutils.get_or_insert_function(b.module, writing, f"llvm.masked.store.{name}")

    def places(address: Any) -> list[Any]:
        return [b.inttoptr(b.add(address, _number(VECTOR * v)), pointer) for v in range(vectors)]

    def load(address: Any) -> list[Any]:
        *whole, last = places(address)
        return [*(b.load(part, align=size) for part in whole), b.call(read, [last, align, mask, zero])]

    def store(row: list[Any], address: Any) -> None:
        *whole, last = places(address)
        for part, place in zip(row, whole, strict=False):
            b.store(part, place, align=size)
        b.call(write, [row[-1], last, align, mask])

    return load, store


def _ask_for(b: Any, address: Any, size: int) -> None:
    """Prefetch `size` bytes; an address that does not exist does no harm."""
    pointer = _byte.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, _int, _int, _int])
    prefetch = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    for offset in [*range(0, size, LINE), size - 1]:
        place = b.inttoptr(b.add(address, _number(offset)), pointer)
        b.call(prefetch, [place, *(ir.Constant(_int, value) for value in (0, 3, 1))])


def _sparse(vectors: int) -> Callable[..., None]:
    @intrinsic
    def panel(context, indptr, first, indices, data, own, halo, C, column):  # type: ignore[no-untyped-def]
        signature = types.void(indptr, first, indices, data, own, halo, C, column)

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            at, start, columns, values, near, far, out, j = _arrays(context, b, signature.args, arguments)
            size = signature.args[3].dtype.bitwidth // 8
            pitch, cut = b.extract_value(near.strides, 0), b.extract_value(near.shape, 0)
            offset = b.mul(j, _number(size))
            here = _address(b, near, offset)
            beyond = b.sub(_address(b, far, offset), b.mul(cut, pitch))  # halo rows are numbered from `cut` on

            def entries(i: Any) -> tuple[Any, Any]:
                row = b.add(start, i)
                return b.load(b.gep(at.data, [row])), b.load(b.gep(at.data, [b.add(row, _number(1))]))

            def row_of_B(p: Any) -> Any:
                c = b.zext(b.load(b.gep(columns.data, [p])), _long)
                return b.add(b.select(b.icmp_unsigned("<", c, cut), here, beyond), b.mul(c, pitch))

            def value(p: Any) -> Any:
                return b.load(b.gep(values.data, [p]))

            count = b.extract_value(out.shape, 0)
            _write_panel(b, _Rows(count, entries, value, row_of_B, True), out, j, vectors, size)
            return context.get_dummy_value()

        return signature, generate

    return panel


_s1, _s2, _s3, _s4, _s5, _s6 = (_sparse(vectors) for vectors in range(1, PANEL + 1))


@njit(nogil=True)
def add_product(indptr, first, indices, data, own, halo, C):  # type: ignore[no-untyped-def]
    """C += rows first, first + 1, ... of S times B = [own | halo], one row above the other.

    `indices` are uint32 and AHEAD more than there are entries; what they are beyond does not matter.
    """
    lanes = VECTOR // C.itemsize
    for j in range(0, C.shape[1], PANEL * lanes):
        vectors = min(-(-(C.shape[1] - j) // lanes), PANEL)
        if vectors == 1:
            _s1(indptr, first, indices, data, own, halo, C, j)
        elif vectors == 2:
            _s2(indptr, first, indices, data, own, halo, C, j)
        elif vectors == 3:
            _s3(indptr, first, indices, data, own, halo, C, j)
        elif vectors == 4:
            _s4(indptr, first, indices, data, own, halo, C, j)
        elif vectors == 5:
            _s5(indptr, first, indices, data, own, halo, C, j)
        else:
            _s6(indptr, first, indices, data, own, halo, C, j)
