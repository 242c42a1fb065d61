"""Points to graph: out of core against one global NNDescent in memory.

Run ``python -m tests.benchmarks.graph [small] [mnist] [million] [limit]``, all by default. Both sides run in
processes of their own, in one call; CPU seconds and peak memory are the kernel's. ``--json FILE`` writes the
figures too.
"""

import argparse
import os
import resource
import tempfile
import time

import numpy as np

from tests.benchmarks.measure import in_process, table, write_json

D, INTRINSIC, GROUPS = 64, 20, 20
COLUMNS = {
    "what": "what",
    "recall": ("recall@q", ".3f"),
    "cpu": ("CPU seconds", ".0f"),
    "ratio": ("CPU over global", ".2f"),
    "other": ("CPU outside NNDescent, over within", ".2f"),
    "wall": ("wall seconds", ".1f"),
    "peak": ("peak memory, GB", ".2f"),
    "diagonal": ("entries in diagonal blocks", ".2f"),
    "blocks": "blocks",
}
found_rows: list[dict] = []


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
    from snmf_dist.graph.build.neighbors import _import_pynndescent

    X = np.load(path)
    nndescent = _import_pynndescent().NNDescent
    nndescent(X[:2000], n_neighbors=q + 6, n_jobs=2, random_state=0)  # compile first, on both sides
    begin = time.process_time()
    indices, _ = nndescent(X, n_neighbors=q + 6, n_jobs=2, random_state=0).neighbor_graph
    return {"cpu": time.process_time() - begin, "rows": len(indices)}


def build(path: str, out: str, limit: str, replication: float) -> dict:
    """Our side: `build_graph`, with the CPU seconds of each stage."""
    import snmf_dist
    from snmf_dist.graph.build.neighbors import approximate_neighbors

    X = np.load(path, mmap_mode="r")[:12_000]
    approximate_neighbors(np.ascontiguousarray(X), 20, seed=0, threads=2)
    spent, peak, last = {}, {}, [time.process_time(), "check"]

    def tell(stage, done, total):
        now = time.process_time()
        spent[last[1]] = spent.get(last[1], 0) + now - last[0]
        peak[last[1]] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        last[:] = now, stage

    begin = time.process_time()
    graph = snmf_dist.build_graph(
        path, out, memory_limit=limit, replication=replication, progress=tell, exact=False, overwrite=True
    )
    tell("end", 1, 1)
    return {
        "cpu": time.process_time() - begin,
        "stages": spent,
        "peak": peak,
        "made": graph.block["made"],
        **graph.coupling(),
    }


def million(folder: str, n: int, limit: str, replication: float, *, rival: bool) -> None:
    """Compare with the global search, stage by stage."""
    path, q = os.path.join(folder, f"{n}.npy"), int(np.log2(n)) + 1
    make_points(path, n)
    out = os.path.join(folder, "g.zarr")
    ours = in_process("tests.benchmarks.graph", "build", path=path, out=out, limit=limit, replication=replication)
    found = ours.result
    print(f"{n} x {D}, q = {q}, {found['made']['cells']} cells, limit {limit}", flush=True)
    print(f"  recall@{q}            {found['made']['recall']:.4f}")
    print(f"  CPU                  {found['cpu']:.1f} s, wall {found['made']['seconds']:.1f} s")
    print("    " + ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in found["stages"].items()))
    print("    GB up to " + ", ".join(f"{stage} {rss:.2f}" for stage, rss in found["peak"].items()))
    nn = found["stages"]["look"]
    print(f"  other stages         {(found['cpu'] - nn) / nn:.2f} x NNDescent")
    print(f"  peak RSS             {ours.rss / 1e9:.2f} GB ({ours.rss / 2**30:.2f} GiB)")
    print(f"  in diagonal blocks   {found['diagonal']:.3f} of entries, {found['blocks']} blocks")
    print(f"  halo                 {found['halo']:.2f} blocks", flush=True)
    line = {"what": f"{n} points, limit {limit}", "recall": found["made"]["recall"], "cpu": found["cpu"]}
    line |= {"other": (found["cpu"] - nn) / nn, "wall": found["made"]["seconds"], "peak": ours.rss / 1e9}
    found_rows.append(line | {"diagonal": found["diagonal"], "blocks": found["blocks"]})
    if rival:
        other = in_process("tests.benchmarks.graph", "global_nndescent", path=path, q=q)
        print(f"  global NNDescent     {other.result['cpu']:.1f} s CPU, peak RSS {other.rss / 1e9:.2f} GB")
        print(f"  CPU ratio            {found['cpu'] / other.result['cpu']:.2f}", flush=True)
        found_rows[-1]["ratio"] = found["cpu"] / other.result["cpu"]
        what = f"one global NNDescent, {n} points"
        found_rows.append({"what": what, "cpu": other.result["cpu"], "peak": other.rss / 1e9})
    os.remove(path)


def digits(folder: str) -> None:
    """MNIST as it is and on 64 principal components, in cells."""
    import snmf_dist

    source = os.path.join(os.environ.get("SNMF_DATA", "../shared/data"), "mnist70k.npz")
    if not os.path.exists(source):
        print(f"MNIST: {source} is not there; set SNMF_DATA")
        return
    with np.load(source) as file:
        np.save(os.path.join(folder, "mnist.npy"), file["X"])
    for pca in (None, 64):
        begin = time.perf_counter()
        graph = snmf_dist.build_graph(
            os.path.join(folder, "mnist.npy"),
            os.path.join(folder, "mnist.zarr"),
            pca=pca,
            exact=False,
            memory_limit="1.2GB",
            overwrite=True,
        )
        made, seconds = graph.block["made"], time.perf_counter() - begin
        print(
            f"MNIST 70k, pca {pca}: recall@17 {made['recall']:.4f}, {made['cells']} cells, {seconds:.0f} s",
            flush=True,
        )
        what = "MNIST, 70k points" if pca is None else f"MNIST, 70k points, pca={pca}"
        found_rows.append({"what": what, "recall": made["recall"], "wall": seconds, "blocks": graph.n_blocks})


def small(path: str, out: str) -> dict:
    """5000 points from a file to a graph store."""
    import snmf_dist

    begin = time.perf_counter()
    graph = snmf_dist.build_graph(path, out)
    return {"seconds": time.perf_counter() - begin, "recall": graph.recall}


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("what", nargs="*", default=["million", "limit", "mnist", "small"])
    options.add_argument("--points", type=int, default=1_000_000)
    options.add_argument("--replication", type=float, default=1.6)
    options.add_argument("--json", help="write the figures here too, as docs/render.py reads them")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if "small" in given.what:
            make_points(os.path.join(folder, "s.npy"), 5000)
            files = {"path": os.path.join(folder, "s.npy"), "out": os.path.join(folder, "s.zarr")}
            cost = in_process("tests.benchmarks.graph", "small", **files)
            print(f"5000 x {D}: {cost.result['seconds']:.1f} s, {cost.wall:.1f} s with the start of Python")
            line = {"recall": cost.result["recall"], "wall": cost.result["seconds"]}
            found_rows.append({"what": "5000 points", **line})
        if "mnist" in given.what:
            digits(folder)
        if "million" in given.what:
            million(folder, given.points, "1.15GB", given.replication, rival=True)
        if "limit" in given.what:
            million(folder, 2 * given.points, "1GiB", given.replication, rival=False)
    if given.json:
        command = " ".join(["python -m tests.benchmarks.graph", *given.what])
        write_json(given.json, benchmark="graph", command=command, tables={"points": table(COLUMNS, found_rows)})


if __name__ == "__main__":
    main()
