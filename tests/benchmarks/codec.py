"""How fast the blocks of a graph come back from disk, by codec and chunk.

Run ``python -m tests.benchmarks.codec GRAPH``. It reads one block of GRAPH, writes its arrays with each codec
beside each other, and reads them in turn: CPU time, the files in the page cache, so that storage costs nothing.
*Pays below* is the speed of storage under which a codec gives back what it costs against raw bytes.
"""

import argparse
import os
import tempfile
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, ZstdCodec

import snmf_dist
from snmf_dist import storage

TIMES = 9
CODECS: dict[str, Any] = {
    "raw": None,
    "zstd 0": ZstdCodec(level=0),  # zarr's default
    "zstd 1": ZstdCodec(level=1),
    "zstd -5": ZstdCodec(level=-5),
    "lz4": BloscCodec(cname="lz4", clevel=5, shuffle="noshuffle"),
    "lz4, shuffled": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"),
    "lz4, bits shuffled": BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle"),
    "blosc zstd 1, shuffled": BloscCodec(cname="zstd", clevel=1, shuffle="shuffle"),
    "blosc zstd 5, shuffled": BloscCodec(cname="zstd", clevel=5, shuffle="shuffle"),
}
CHUNKS = (1 << 18, 1 << 20, 1 << 22)


def seconds(functions: dict[Any, Callable[[], Any]]) -> dict[Any, float]:
    """CPU time of each, in turn, the median of `TIMES`."""
    spent: dict[Any, list[float]] = {name: [] for name in functions}
    for _ in range(TIMES):
        for name, function in functions.items():
            begin = time.process_time()
            function()
            spent[name].append(time.process_time() - begin)
    return {name: float(np.median(times)) for name, times in spent.items()}


def stored(folder: str, name: str, values: np.ndarray, chunk: int, codec: Any) -> tuple[zarr.Array, int]:
    """`values` as a Zarr array in equal chunks, and its bytes on disk."""
    path = os.path.join(folder, name)
    pieces = max(-(-len(values) // chunk), 1)
    array = zarr.create_array(
        path,
        shape=values.shape,
        dtype=values.dtype,
        chunks=(-(-len(values) // pieces),),
        compressors=codec,
        overwrite=True,
    )
    array[:] = values
    return array, sum(
        os.path.getsize(os.path.join(place, file)) for place, _, files in os.walk(path) for file in files
    )


def by_codec(folder: str, arrays: dict[str, np.ndarray]) -> None:
    """Each array by each codec, in the chunks of the store."""
    print("\n| array | codec | of raw bytes | read, ms | MB/s | pays below, MB/s |\n|---|---|---|---|---|---|")
    for name, values in arrays.items():
        made = {label: stored(folder, label, values, storage.CHUNK, codec) for label, codec in CODECS.items()}
        spent = seconds({label: lambda array=array: array[:] for label, (array, _) in made.items()})
        for label, (_, size) in made.items():
            slower = spent[label] - spent["raw"]
            pays = (values.nbytes - size) / 1e6 / slower if slower > 0 else np.nan
            rate = values.nbytes / 1e6 / spent[label]
            print(
                f"| {name} | {label} | {size / values.nbytes:.2f} | {1e3 * spent[label]:.1f} | {rate:.0f} | "
                f"{pays:.0f} |",
                flush=True,
            )


def by_chunk(folder: str, arrays: dict[str, np.ndarray]) -> None:
    """The column numbers by size of chunk."""
    print("\n| indices, entries a chunk | raw, ms | lz4, shuffled, ms |\n|---|---|---|")
    made = {
        (label, chunk): stored(folder, f"{label}{chunk}", arrays["indices"], chunk, CODECS[label])[0]
        for chunk in CHUNKS
        for label in ("raw", "lz4, shuffled")
    }
    spent = seconds({key: lambda array=array: array[:] for key, array in made.items()})
    for chunk in CHUNKS:
        print(f"| {chunk} | {1e3 * spent['raw', chunk]:.1f} | {1e3 * spent['lz4, shuffled', chunk]:.1f} |")


def whole_read(graph: snmf_dist.GraphStore, arrays: dict[str, np.ndarray]) -> None:
    """What a task pays for a block of the store as it is, and for its parts."""
    start, stop = map(int, graph.bounds[:2])
    spent = seconds(
        {
            "open the store and read block 0": lambda: snmf_dist.open_graph(graph.path).read_rows(start, stop),
            "read block 0 of an open store": lambda: graph.read_block(0),
            "its checksum (CRC-32)": lambda: storage.checksum(*arrays.values()),
            "Adler-32 instead": lambda: [zlib.adler32(values.data) for values in arrays.values()],
            "a copy in memory": lambda: [values.copy() for values in arrays.values()],
        }
    )
    size = sum(values.nbytes for values in arrays.values()) / 1e6
    print(f"\n| {graph!r}, {size:.1f} MB | ms | MB/s |\n|---|---|---|")
    for name, time_ in spent.items():
        print(f"| {name} | {1e3 * time_:.1f} | {size / time_:.0f} |")


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("graph")
    graph = snmf_dist.open_graph(options.parse_args().graph)
    A = graph.read_block(0)
    arrays = {"data": A.data, "indices": A.indices, "indptr": A.indptr}
    whole_read(graph, arrays)
    with tempfile.TemporaryDirectory() as folder:
        by_codec(folder, arrays)
        by_chunk(folder, arrays)


if __name__ == "__main__":
    main()
