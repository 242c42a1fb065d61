"""Run a function in a process of its own and say what it cost; write what a benchmark found as JSON.

The JSON has one form for all benchmarks, which ``docs/render.py`` turns into the tables of the documentation::

    {"benchmark", "command", "date", "machine", "versions", "notes": [text, ...],
     "tables": {name: {"columns": [{"key", "title", "format"}, ...], "rows": [{key: cell, ...}, ...]}}}

A cell is a number, text, null, or an object: ``median``, ``found`` or nothing, then any of ``low`` and ``high``
(the spread), ``of`` (of how many), ``error`` (the standard error) and ``paper`` (the paper's own figure).
"""

import json
import os
import platform
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

PACKAGES = ("snmf-dist", "numpy", "scipy", "scikit-learn", "numba", "dask", "distributed", "zarr", "pynndescent")


class Cost(NamedTuple):
    """Of a child process: what it returned, wall and CPU seconds, and its peak resident set in bytes."""

    result: Any
    wall: float
    cpu: float
    rss: float


def in_process(module: str, function: str, **arguments: Any) -> Cost:
    """Call ``module.function(**arguments)`` in a fresh Python; arguments and result travel as JSON."""
    code = (
        f"import json, sys; from {module} import {function} as f; "
        "print('RESULT ' + json.dumps(f(**json.loads(sys.argv[1]))))"
    )
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, json.dumps(arguments)], stdout=subprocess.PIPE, text=True
    )
    peak = [0.0]
    watch = threading.Thread(target=_watch, args=(child.pid, peak))
    watch.start()
    out, _ = child.communicate()
    watch.join()
    if child.returncode:
        raise RuntimeError(f"{function} failed with {child.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    line = next(line for line in out.splitlines() if line.startswith("RESULT "))
    return Cost(json.loads(line.removeprefix("RESULT ")), time.perf_counter() - begin, cpu, peak[0])


def _watch(pid: int, peak: list[float]) -> None:
    """The kernel's own high-water mark of the child, read until it is gone."""
    while os.path.exists(f"/proc/{pid}"):
        try:
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                marks = [line.split()[1] for line in file if line.startswith("VmHWM")]
        except OSError:
            return
        if not marks:
            return
        peak[0] = max(peak[0], 1024.0 * float(marks[0]))
        time.sleep(0.05)


def table(columns: Mapping[str, str | tuple[str, str]], rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A table for `write_json`: key to title, or to title and number format (as ``".2f"``), and the rows."""
    described = []
    for key, title in columns.items():
        title, form = (title, None) if isinstance(title, str) else title
        described.append({"key": key, "title": title, **({"format": form} if form else {})})
    return {"columns": described, "rows": [dict(row) for row in rows]}


def spread(values: Iterable[float]) -> dict[str, float]:
    """The cell that says how far values lie apart."""
    values = list(values)
    return {"low": float(min(values)), "high": float(max(values))}


def write_json(
    path: str | os.PathLike[str],
    *,
    benchmark: str,
    tables: Mapping[str, dict[str, Any]],
    command: str | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Write what a benchmark found, with the date, the machine and the versions of the packages.

    Parameters
    ----------
    benchmark : str
        Name of the module in ``tests/benchmarks``.
    tables : mapping
        Name to a table, as `table` makes it.
    command : str, optional
        What makes these figures again; by default the benchmark without options.
    notes : sequence of str
        Remarks on this run, in Markdown.
    """
    found = {
        "benchmark": benchmark,
        "command": command or f"python -m tests.benchmarks.{benchmark}",
        "date": date.today().isoformat(),
        "machine": describe_machine(),
        "versions": installed_versions(),
        "notes": list(notes),
        "tables": dict(tables),
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1, ensure_ascii=False)
        file.write("\n")


def describe_machine() -> dict[str, Any]:
    """Processor, cores this process may use, and memory in GB; no name of the machine."""
    processor = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        processor = names[0] if names else processor
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": processor, "cores": cores, "memory_gb": round(memory / 1e9, 1)}


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages that the figures depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
