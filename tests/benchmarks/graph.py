"""Points to graph: out of core against one global NNDescent in memory.

Run ``python -m tests.benchmarks.graph [--points 1000000] [--limit 1.15GB]``. Both sides run in processes of
their own, in one call; CPU seconds and peak memory are the kernel's.
"""

import argparse
import os
import tempfile
import time

import numpy as np

from tests.benchmarks.measure import in_process

D, INTRINSIC, GROUPS = 64, 20, 20


def make_points(path: str, n: int, *, seed: int = 0) -> np.ndarray:
    """Write a curved, overlapping mixture of intrinsic dimension 20 as ``.npy``; return its labels."""
    random = np.random.default_rng(seed)
    centres = 1.5 * random.standard_normal((GROUPS, INTRINSIC)).astype(np.float32)
    mix = random.standard_normal((2, INTRINSIC, D)).astype(np.float32) / np.sqrt(INTRINSIC, dtype=np.float32)
    y = random.integers(0, GROUPS, n)
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, D))
    for start in range(0, n, 100_000):
        rows = slice(start, min(start + 100_000, n))
        z = centres[y[rows]] + random.standard_normal((rows.stop - start, INTRINSIC), dtype=np.float32)
        X[rows] = np.tanh(z @ mix[0]) + 0.5 * np.sin(z @ mix[1])
    X.flush()
    return y


def global_nndescent(path: str, q: int) -> dict:
    """The rival: all points in one process."""
    from snmf_dist.graph.neighbors import _import_pynndescent

    X = np.load(path)
    nndescent = _import_pynndescent().NNDescent
    nndescent(X[:2000], n_neighbors=q + 6, n_jobs=2, random_state=0)  # compile first, on both sides
    begin = time.process_time()
    indices, _ = nndescent(X, n_neighbors=q + 6, n_jobs=2, random_state=0).neighbor_graph
    return {"cpu": time.process_time() - begin, "rows": len(indices)}


def build(path: str, out: str, limit: str, replication: float) -> dict:
    """Our side: `build_graph`, with the CPU seconds of each stage."""
    import snmf_dist
    from snmf_dist.graph.neighbors import approximate_neighbors

    X = np.load(path, mmap_mode="r")[:12_000]
    approximate_neighbors(np.ascontiguousarray(X), 20, seed=0, threads=2)
    spent, last = {}, [time.process_time(), "check"]

    def tell(stage, done, total):
        now = time.process_time()
        spent[last[1]] = spent.get(last[1], 0) + now - last[0]
        last[:] = now, stage

    begin = time.process_time()
    graph = snmf_dist.build_graph(
        path, out, memory_limit=limit, replication=replication, progress=tell, exact=False, overwrite=True
    )
    tell("end", 1, 1)
    return {
        "cpu": time.process_time() - begin,
        "stages": spent,
        "made": graph.block["made"],
        **graph.coupling(),
    }


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--points", type=int, default=1_000_000)
    options.add_argument("--limit", default="1.15GB")
    options.add_argument("--replication", type=float, default=1.6)
    options.add_argument("--skip-global", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "points.npy")
        make_points(path, given.points)
        q = int(np.log2(given.points)) + 1
        ours = in_process(
            "tests.benchmarks.graph",
            "build",
            path=path,
            out=os.path.join(folder, "g.zarr"),
            limit=given.limit,
            replication=given.replication,
        )
        found = ours.result
        print(f"{given.points} x {D}, q = {q}, {found['made']['cells']} cells, limit {given.limit}")
        print(f"  recall@{q}            {found['made']['recall']:.4f}")
        print(f"  CPU                  {found['cpu']:.1f} s, wall {found['made']['seconds']:.1f} s")
        for stage, seconds in found["stages"].items():
            print(f"    {stage:10} {seconds:8.1f} s")
        nn = found["stages"]["connect"]
        print(f"  other stages         {(found['cpu'] - nn) / nn:.2f} x NNDescent")
        print(f"  peak RSS             {ours.rss / 1e9:.2f} GB")
        print(f"  in diagonal blocks   {found['diagonal']:.3f} of entries, {found['blocks']} blocks")
        print(f"  halo                 {found['halo']:.2f} blocks")
        if not given.skip_global:
            rival = in_process("tests.benchmarks.graph", "global_nndescent", path=path, q=q)
            print(
                f"  global NNDescent     {rival.result['cpu']:.1f} s CPU, peak RSS {rival.rss / 1e9:.2f} GB"
            )
            print(f"  CPU ratio            {found['cpu'] / rival.result['cpu']:.2f}")


if __name__ == "__main__":
    main()
