"""Labels for new points: how good on MNIST, how many a second beside the search, and in how much memory.

python -m tests.benchmarks.predict                       60,000 digits fitted, 10,000 placed
python -m tests.benchmarks.predict --fitted 3000 --new 500

Prints the accuracy (AC) of the fitted and of the new rows, points a second of all that is not the search for
neighbours, and the peak memory of this process with a quarter of the new points, with all, and with all four times
over. Exits with 1 if a claim does not hold.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import snmf_dist
from snmf_dist.result import placing
from tests.benchmarks.measure import table, write_json
from tests.helpers import data_folder

LOST = 0.01  # of the accuracy of the fitted rows that new ones may lack
SPEED = 5000  # new points a second, beside the search
GROWTH = 1.1  # times the memory that four times as many new points may take
COLUMNS: dict[str, Any] = {"what": "what", "found": ("found", ".4g"), "aim": "aim", "more": "more"}


def timed(blocks: Any, spent: list[float]) -> Any:
    """A generator function like `blocks`, whose time is added to `spent`."""

    def wrapped(*given: Any, **more: Any) -> Iterator[Any]:
        found = blocks(*given, **more)
        while True:
            begun = time.perf_counter()
            try:
                block = next(found)
            except StopIteration:
                return
            finally:
                spent[0] += time.perf_counter() - begun
            yield block

    return wrapped


def forget_peak() -> None:
    """Let the peak of this process's memory begin anew (Linux)."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def peak() -> float:
    """Bytes of memory at the height since `forget_peak`."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(1024.0 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def measure(fitted: int, new: int, block_rows: int) -> dict[str, float]:
    """Fit some digits, place others, and measure."""
    with np.load(data_folder() / "mnist70k.npz") as file:
        X, y = file["X"].reshape(70_000, -1).astype(np.float32), file["y"]
    found: dict[str, float] = {"fitted": fitted, "new": new}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for name, rows in (("known", X[:fitted]), ("new", X[60_000 : 60_000 + new])):
            np.save(os.path.join(folder, f"{name}.npy"), rows)
        np.save(os.path.join(folder, "quarter.npy"), X[60_000 : 60_000 + new // 4])
        np.save(os.path.join(folder, "more.npy"), np.tile(X[60_000 : 60_000 + new], (4, 1)))
        del X
        graph = snmf_dist.build_graph(os.path.join(folder, "known.npy"), os.path.join(folder, "graph.zarr"))
        snmf_dist.fit(graph, 10, out=os.path.join(folder, "result.zarr"))
        solution = snmf_dist.open_solution(os.path.join(folder, "result.zarr"))
        found["ac_fitted"] = snmf_dist.score(solution.labels, y[:fitted]).accuracy
        whole, spent = placing.near_blocks, [0.0]
        placing.near_blocks = timed(whole, spent)
        try:
            peaks = {}
            for name in ("quarter", "new", "more"):
                forget_peak()
                spent[0], begun, labels, novel = 0.0, time.perf_counter(), [], 0
                for part in placing.place(
                    solution.membership,
                    solution.provenance,
                    os.path.join(folder, f"{name}.npy"),
                    block_rows=block_rows,
                ):
                    labels.append(part.labels)
                    novel += int(part.novel.sum())
                seconds = time.perf_counter() - begun
                peaks[name] = peak()
                if name == "new":
                    found["ac_new"] = snmf_dist.score(np.concatenate(labels), y[60_000 : 60_000 + new]).accuracy
                    found |= {"novel": novel / new, "search_seconds": spent[0]}
                    found["points_a_second_beside_the_search"] = new / (seconds - spent[0])
        finally:
            placing.near_blocks = whole
        found |= {f"peak_MB_{name}": height / 1e6 for name, height in peaks.items()}
    return found


def claims(found: dict[str, float]) -> list[dict[str, Any]]:
    """What is promised, what was found, and whether it holds."""
    lost = found["ac_fitted"] - found["ac_new"]
    speed = found["points_a_second_beside_the_search"]
    growth = found["peak_MB_more"] / found["peak_MB_new"]
    fitted, new = f"{found['fitted']:,} digits of MNIST", f"{found['new']:,} others"
    accuracy = f"{found['ac_new']:.4f} and {found['ac_fitted']:.4f}; {found['novel']:.1%} are novel"
    peaks = f"{found['peak_MB_new']:.0f} and {found['peak_MB_more']:.0f} MB"
    return [
        {
            "what": f"accuracy of {fitted} less that of {new}, labelled by `predict`",
            "found": lost,
            "aim": f"at most {LOST}",
            "more": accuracy,
            "holds": lost <= LOST,
        },
        {
            "what": "new points a second, beside the search for their neighbours",
            "found": speed,
            "aim": f"at least {SPEED}",
            "more": f"the search took {found['search_seconds']:.0f} s",
            "holds": speed >= SPEED,
        },
        {
            "what": "peak memory of four times as many new points, over that of one time",
            "found": growth,
            "aim": f"at most {GROWTH}",
            "more": peaks,
            "holds": growth <= GROWTH,
        },
    ]


def main(arguments: list[str] | None = None) -> None:
    """Measure and print, and exit with 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fitted", type=int, default=60_000)
    parser.add_argument("--new", type=int, default=10_000)
    parser.add_argument("--block-rows", type=int, default=1000)
    parser.add_argument("--json", metavar="FILE", help="write the figures here too, as docs/render.py reads them")
    given = parser.parse_args(arguments)
    found = measure(given.fitted, given.new, given.block_rows)
    for name, value in found.items():
        print(f"{name:36}{value:12.4f}")
    lines = claims(found)
    for line in lines:
        holds = "holds" if line["holds"] else "DOES NOT HOLD"
        print(f"{holds}: {line['what']}: {line['found']:.4g} ({line['aim']}; {line['more']})")
    if given.json:
        command = f"python -m tests.benchmarks.predict --fitted {given.fitted} --new {given.new}"
        write_json(given.json, benchmark="predict", command=command, tables={"claims": table(COLUMNS, lines)})
    sys.exit(not all(line["holds"] for line in lines))


if __name__ == "__main__":
    main()
