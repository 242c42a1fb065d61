"""A graph within a memory limit: edges in parts, import, plan, fit, labels in Parquet.

Run it as ``python examples/08_large_graph.py [folder [nodes]]``; it writes large_graph.png there if matplotlib is
installed. 300,000 nodes take a minute and 1 GB of disk. With more nodes the plan chooses to stream A, or to work
from disk.
"""

import shutil
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import snmf_dist

NODES, GROUPS, DEGREE, PART = 300_000, 16, 12, 50_000
LIMIT = "800MB"
TILES = 96


def write_parts(folder: Path, n: int, seed: int = 0) -> np.ndarray:
    """Draw a graph of planted groups a part of its nodes at a time; returns the group of each node."""
    group = np.random.default_rng(seed).integers(0, GROUPS, n)
    members = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[members], np.arange(GROUPS + 1))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for part, first in enumerate(range(0, n, PART)):
        random = np.random.default_rng([seed, part])
        source = np.repeat(np.arange(first, min(first + PART, n)), DEGREE)
        own = group[source]
        inside = members[random.integers(starts[own], starts[own + 1])]
        target = np.where(random.random(len(source)) < 0.8, inside, random.integers(0, n, len(source)))
        table = pa.table({"source": source, "target": target})
        parquet.write_table(table, folder / f"part-{part:04d}.parquet")
    return group


class Memory:
    """The memory of this process over time, and when each step began."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.samples: list[tuple[float, float]] = []
        self.steps: list[tuple[float, str]] = []

    @contextmanager
    def watched(self):
        """Take a sample ten times a second."""
        import psutil

        process, done = psutil.Process(), threading.Event()

        def watch() -> None:
            while not done.wait(0.1):
                self.samples.append((time.perf_counter() - self.begin, process.memory_info().rss / 1e9))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield self
        finally:
            done.set()
            thread.join()

    def step(self, name: str) -> None:
        """Note that a step begins."""
        self.steps.append((time.perf_counter() - self.begin, name))
        print(f"{self.steps[-1][0]:6.1f} s  {name}", flush=True)


def density(graph: snmf_dist.GraphStore, place: np.ndarray) -> np.ndarray:
    """Entries of A in tiles, a block of rows at a time; row i of the input stands at ``place[i]``."""
    found = np.zeros((TILES, TILES))
    tile = place[graph.order] * TILES // graph.n
    for i in range(graph.n_blocks):
        A = graph.read_block(i).tocoo()
        np.add.at(found, (tile[A.row + graph.bounds[i]], tile[A.col]), 1)
    return found


def draw(graph: snmf_dist.GraphStore, labels: np.ndarray, memory: Memory, path: Path) -> None:
    """Memory over time, and A before and after."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 3.1), layout="constrained", facecolor="white")
    first, before, after = figure.subplots(1, 3, width_ratios=[1.9, 1, 1])
    first.plot(*np.array(memory.samples).T, color="#0072b2")
    limit = float(LIMIT.removesuffix("MB")) / 1000
    first.axhline(limit, color="#d55e00", linestyle="--", linewidth=1)
    first.text(0, limit, f"memory_limit={LIMIT!r}", va="bottom", fontsize=8, color="#d55e00")
    for at, name in memory.steps:
        first.axvline(at, color="#cccccc", linewidth=1)
        first.text(
            at, 0.02, f" {name}", rotation=90, fontsize=8, va="bottom", transform=first.get_xaxis_transform()
        )
    first.set(xlabel="seconds", ylabel="memory of the process, GB", ylim=(0, 1.3))
    first.spines[["top", "right"]].set_visible(False)
    rank = np.empty(graph.n, dtype=np.int64)
    rank[np.argsort(labels, kind="stable")] = np.arange(graph.n)
    for axes, place, title in ((before, np.arange(graph.n), "A as it came"), (after, rank, "A by clusters")):
        axes.imshow(np.log1p(density(graph, place)), cmap="Blues")
        axes.set(xticks=[], yticks=[], title=title)
    figure.savefig(path, dpi=80)


def main(folder: Path, n: int = NODES, memory_limit: str = LIMIT) -> snmf_dist.Solution:
    """Parts of an edge list to labels in a Parquet file."""
    folder.mkdir(parents=True, exist_ok=True)
    with Memory().watched() as memory:
        memory.step("draw edges")
        group = write_parts(folder / "edges", n)

        # The folder is one edge list. Edges go through files, never all through memory.
        memory.step("import")
        graph = snmf_dist.import_graph(
            folder / "edges", folder / "large.zarr", symmetrize="max", memory_limit=memory_limit, overwrite=True
        )
        print(f"{graph.n} nodes, {graph.nnz} entries in {graph.n_blocks} blocks")

        # What would it take? Nothing is read for that but the manifest of the graph.
        print("\n".join(snmf_dist.plan_fit(graph, GROUPS, memory_limit=memory_limit).lines()))

        memory.step("fit")
        result = folder / "large-result.zarr"
        solution = snmf_dist.fit(graph, GROUPS, memory_limit=memory_limit, out=result, overwrite=True)
        print(solution, solution.provenance["way"])

        memory.step("export")
        solution.export(folder / "labels.parquet", overwrite=True)
    print(f"highest memory {max((size for _, size in memory.samples), default=0):.2f} GB")
    print("against the planted groups:", snmf_dist.score(solution.labels, group))
    try:
        draw(graph, solution.labels, memory, folder / "large_graph.png")
    except ImportError:
        print("pictures need matplotlib; install snmf-dist[report]")
    return solution


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    main(place, int(sys.argv[2]) if len(sys.argv) > 2 else NODES)
