"""One measurement of `ingest`, in a process of its own, by the public API alone: any revision can be measured.

``python ingest_probe.py EDGES N STORE LIMIT`` imports an edge list of n nodes and prints, as JSON, the seconds of
the processor, and in MB what was written to files and the peak of the memory.
"""

import json
import resource
import sys
import time

import snmf_dist


def written() -> int:
    """Bytes that this process has written to files so far, whether they have reached the disk or not."""
    with open("/proc/self/io", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("wchar"))


def main() -> None:
    """Measure, and print."""
    edges, n, out, limit = sys.argv[1:]
    begin, before = time.perf_counter(), written()
    cpu = time.process_time()
    snmf_dist.import_graph(edges, out, n=int(n), symmetrize="max", memory_limit=limit, ids="rows")
    found = {
        "cpu": time.process_time() - cpu,
        "written": (written() - before) / 1e6,
        "wall": time.perf_counter() - begin,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    }
    print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main()
