"""What an edge list in text looks like: what separates its cells, its header, its comments, its kind of ids."""

import codecs
import csv
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from snmf_dist.errors import InputError

EDGE_COLUMNS = ("source", "target", "weight")
SAMPLE_BYTES = 1 << 20  # of the file that the format is found from
KONECT = ("sym", "asym", "bip")  # first word of a KONECT file, after %
DECIMAL_COMMA = re.compile(r"^[^;]*;[^;]*;\s*\d*,\d+\s*$")  # a;b;1,5: what spreadsheets write in many countries
HEADERS = (("src", "dst"), ("from", "to"), ("u", "v"), ("node1", "node2"), ("fromnodeid", "tonodeid"))


class TextFormat(NamedTuple):
    """The columns of a text file and what separates them.

    Attributes
    ----------
    names : tuple of str
        The columns.
    delimiter : str
        What stands between cells.
    skip : int
        Lines before the first edge.
    spaced : bool
        Whether blanks separate cells, one or several.
    padded : bool
        Whether blanks around the delimiter are layout, as in ``alice, bob``.
    comments : bool
        Whether lines that begin with # or % are comments wherever they stand.
    text : bool
        Whether ids are text; else whole numbers.
    """

    names: tuple[str, ...]
    delimiter: str
    skip: int
    spaced: bool
    padded: bool
    comments: bool
    text: bool


def detect_format(start: bytes, path: str, columns: Sequence[str] | None = None) -> TextFormat:
    """Find the format from the first bytes of a file; `columns` are the names that the user gave."""
    words = start.decode("utf-8-sig", errors="replace")
    if words.startswith("%%MatrixMarket"):
        raise InputError(f"{path}: is a Matrix Market file; name it .mtx")
    lines = re.split("\r\n|\n|\r", words)  # splitlines() knows more line ends than CSV does
    if len(start) >= SAMPLE_BYTES and len(lines) > 1:
        lines.pop()  # it may be cut off
    at = next((i for i, line in enumerate(lines) if line.strip() and line[0] not in "#%"), None)
    if at is None:
        raise InputError(f"{path}: holds no edges; expected a line an edge")
    first = lines[at]
    konect = re.match(r"%\s*(\w+)", lines[0])
    konect = konect if konect and konect[1] in KONECT else None
    if konect and konect[1] == "bip":
        raise InputError(
            f"{path}: is a bipartite KONECT graph, whose two sides use the same ids for different nodes; expected "
            "a graph of one kind of node"
        )
    delimiter = next((d for d in "\t,; " if d in first.strip()), None)
    if delimiter is None:
        raise InputError(
            f"{path}: line {at + 1} is {first[:40]!r}; expected source and target, with a tab, a "
            "comma, a semicolon or a space between them"
        )
    blanks = first.split()
    spaced = delimiter == " " or (delimiter == "\t" and all(map(_is_number, blanks)))
    delimiter = " " if spaced else delimiter
    kept = [line for line in lines[at:] if line.strip() and not line.startswith(("#", "%"))]
    if delimiter in ",;" and all(map(DECIMAL_COMMA.search, kept[1:] or kept)):
        raise InputError(
            f"{path}: its weights have decimal commas, as in {kept[-1][:40]!r}; write them with points (1.5)"
        )
    rows = [_cells(line, delimiter) for line in kept]
    header = _has_header(rows, columns, path)
    cells = rows[0] if header else tuple(f"column {i + 1}" for i in range(len(rows[0])))
    if konect and not header and len(cells) == 4:
        cells = (*EDGE_COLUMNS, "time")
    body = rows[header:]
    use = [i for i, name in enumerate(cells) if columns and name in list(columns)[:2]] or [0, 1]
    text = any(not _is_number(row[i]) or _is_code(row[i]) for row in body for i in use if i < len(row))
    if columns is None and any(len(row) > 2 and row[2].startswith("{") for row in body):
        raise InputError(
            f"{path}: has attributes behind each edge, as networkx.write_edgelist writes them; write it with "
            "networkx.write_weighted_edgelist, or give import_graph the graph itself"
        )
    mac = "\r" in words and "\n" not in words
    comments = not text and not mac
    if (
        columns is None
        and not header
        and len(cells) == 3
        and _are_times([row[2] for row in body if len(row) == 3])
    ):
        raise InputError(
            f"{path}: {cells[2]!r} looks like times (seconds since 1970), not weights; leave it out with "
            f"columns={cells[:2]}, or name it with columns={cells} if these are weights (--columns)"
        )
    return TextFormat(
        names=cells,
        delimiter=delimiter,
        skip=int(header) if comments else at + header,
        spaced=spaced and not mac,
        padded=text and not spaced and all(f"{delimiter} " in line for line in kept[header:]),
        comments=comments,
        text=text,
    )


def choose_columns(names: Sequence[str], columns: Sequence[str] | None, path: str) -> tuple[str, ...]:
    """The columns with source, target and weight: by name if they have theirs, else by position."""
    found = {name.lower(): name for name in names}
    if len(found) < len(names):
        raise InputError(f"{path}: has columns {list(names)}; expected each name once")
    if columns is not None:
        if not 2 <= len(set(columns)) == len(columns) <= 3 or not all(c.lower() in found for c in columns):
            raise InputError(
                f"{path}: has columns {list(names)}, not {list(columns)}; name source, target and, if there "
                "is one, weight"
            )
        return tuple(found[name.lower()] for name in columns)
    neo4j = _neo4j(names)
    if neo4j:
        return neo4j
    if all(name in found for name in EDGE_COLUMNS[:2]):
        return tuple(found[name] for name in EDGE_COLUMNS if name in found)
    moved = any(name in found and names.index(found[name]) != i for i, name in enumerate(EDGE_COLUMNS))
    if moved or not 2 <= len(names) <= 3:
        raise InputError(
            f"{path}: has columns {list(names)}; say with columns=(…) which are source, target and weight"
        )
    return tuple(names)


def named_ends(names: Sequence[str]) -> tuple[str, str] | None:
    """The two columns that are source and target by their names alone, if there are such."""
    found = {name.lower(): name for name in names}
    neo4j = _neo4j(names)
    if neo4j:
        return neo4j[0], neo4j[1]
    if all(name in found for name in EDGE_COLUMNS[:2]):
        return found[EDGE_COLUMNS[0]], found[EDGE_COLUMNS[1]]
    return (names[0], names[1]) if tuple(found)[:2] in HEADERS else None


def _neo4j(names: Sequence[str]) -> tuple[str, ...] | None:
    """Columns of a header as ``neo4j-admin import`` has it: ``:START_ID``, ``:END_ID`` and ``weight:float``."""
    ends = [[name for name in names if mark in name.upper()] for mark in (":START_ID", ":END_ID")]
    if not all(len(found) == 1 for found in ends):
        return None
    weight = [name for name in names if name.lower().split(":")[0] == "weight"]
    return (ends[0][0], ends[1][0], *weight[:1])


def _has_header(rows: list[tuple[str, ...]], columns: Sequence[str] | None, path: str) -> bool:
    """Tell whether the first row names the columns; text above text may be either, and is not guessed."""
    first = rows[0]
    if len(first) > 1 and all(map(_is_number, first[:2])):
        return False
    lower = tuple(cell.lower() for cell in first)
    if columns is not None:
        named = [name.lower() for name in columns]
        return not all(re.fullmatch(r"column \d+", name) for name in named)
    if set(EDGE_COLUMNS[:2]) <= set(lower) or _neo4j(first) or lower[:2] in HEADERS:
        return True
    if len(first) == 3 and _is_number(first[2]):
        return False
    if len(rows) > 1 and all(map(_is_number, rows[1][:2])):
        return True
    if {cell for row in rows[1:] for cell in row[:2]} & set(first[:2]):
        return False  # a name of a column is no node
    if len(first) == 3 and len(rows) > 1 and len(rows[1]) == 3 and _is_number(rows[1][2]):
        return True
    if len(rows) == 1:
        return True  # a header above nothing
    raise InputError(
        f"{path}: its first line, {list(first)}, may be a header or an edge; if it is a header, pass "
        f"columns={first[:3]}, if it is an edge, columns=('column 1', 'column 2') (--columns)"
    )


def _cells(line: str, delimiter: str) -> tuple[str, ...]:
    parts = line.split() if delimiter == " " and '"' not in line else next(csv.reader([line], delimiter=delimiter))
    return tuple(cell.strip().strip('"') for cell in parts)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell == ""  # an empty cell is refused later, by its column
    return True


def _are_times(cells: list[str]) -> bool:
    """Whole numbers that are seconds of the years 2000 to 2100 throughout, as temporal lists of SNAP have them."""
    return bool(cells) and all(cell.isdigit() and 946_684_800 <= int(cell) < 4_102_444_800 for cell in cells)


def _is_code(cell: str) -> bool:
    """Digits that are no number: a zero in front would be lost."""
    return len(cell) > 1 and cell[0] in "0+" and cell.lstrip("+").isdigit()


class CleanLines:
    """A file of bytes without comment lines and without superfluous blanks; only ``read(size)``, from the front.

    Parameters
    ----------
    file : object
        Opened for reading bytes.
    form : TextFormat
        What to take out: comments, repeated blanks, blanks around the delimiter.
    """

    closed = False

    def __init__(self, file: Any, form: TextFormat) -> None:
        self._file, self._form, self._started = file, form, False
        self._rest, self._ready, self._at = b"", memoryview(b""), 0

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; none at the end."""
        while self._at == len(self._ready):
            more = self._file.read(max(size, 1 << 20))
            if not self._started:
                more, self._started = more.removeprefix(codecs.BOM_UTF8), True
            whole = self._rest + more
            cut = whole.rfind(b"\n") + 1 if more else len(whole)
            self._rest = whole[cut:]
            if not more and not cut:
                return b""
            self._ready, self._at = memoryview(self._clean(whole[:cut])), 0
        end = len(self._ready) if size < 0 else min(self._at + size, len(self._ready))
        start, self._at = self._at, end
        return bytes(self._ready[start:end])

    def _clean(self, lines: bytes) -> bytes:
        if self._form.comments and (b"#" in lines or b"%" in lines):
            lines = re.sub(rb"(?m)^[ \t]*[#%][^\n]*\n?", b"", lines)
        if self._form.spaced:
            lines = re.sub(rb"(?m)^[ \t]+|[ \t]+(?=\r?$)", b"", lines)
            lines = re.sub(rb"[ \t]{2,}|\t", b" ", lines)
        if self._form.padded:  # what stands between quotes stays
            mark = re.escape(self._form.delimiter.encode())
            lines = re.sub(rb'("[^"]*")|[ ]*(' + mark + rb")[ ]*", rb"\1\2", lines)
        return lines

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def close(self) -> None:
        """Read no more; the file below is closed by who opened it."""
        self.closed = True
