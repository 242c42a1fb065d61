"""Arrow files of users: opened in either of Arrow's two formats, and checked batch by batch; zstd by Arrow."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ARROW = (".arrow", ".feather")
MAGIC = b"ARROW1"


class ZstdFile(io.RawIOBase):
    """A file packed by zstd, read from the front as often as asked; Python itself unpacks it from 3.14 on."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._streams: list[Any] = []  # one that is forgotten would close the file
        self.seek(0)

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go back to the front, and nowhere else."""
        import pyarrow as pa

        if offset or whence:
            raise io.UnsupportedOperation("a packed file is read from the front")
        self._file.seek(0)
        self._streams.append(pa.CompressedInputStream(pa.PythonFile(self._file, mode="r"), "zstd"))
        return 0

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, and say how far."""
        filled = 0
        while filled < len(buffer) and (data := self._streams[-1].read(len(buffer) - filled)):
            buffer[filled : filled + len(data)] = data
            filled += len(data)
        return filled


def open_arrow(file: Any) -> Any:
    """A reader of a file, or of a stream that was written to a file."""
    import pyarrow as pa

    start = file.read(len(MAGIC))
    file.seek(0)
    with _named(pa):
        return pa.ipc.open_file(file) if start == MAGIC else pa.ipc.open_stream(file)


@contextmanager
def _named(pa: Any) -> Iterator[None]:
    """Whatever Arrow raises of a damaged file, as a ValueError."""
    try:
        yield
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise ValueError(f"the file is damaged: {error}") from error


def arrow_batches(reader: Any) -> Iterator[Any]:
    """The record batches of either format, each checked: Arrow itself believes the offsets in a file."""
    import pyarrow as pa

    if hasattr(reader, "get_batch"):
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        batches = iter(reader)
    while True:
        with _named(pa):
            batch = next(batches, None)
            if batch is None:
                return
            batch.validate(full=True)
        yield batch


def to_large_text(values: Any) -> Any:
    """Text of any of Arrow's types as large_string."""
    import pyarrow as pa

    try:
        return values.cast(pa.large_string())
    except pa.ArrowNotImplementedError:  # views of text, before Arrow could cast them
        return pa.array(values.to_pylist(), pa.large_string())


def is_text(kind: Any) -> bool:
    """Tell whether a type of Arrow is text, or categories of text."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
