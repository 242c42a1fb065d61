"""Graphs and data the tests share."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from tests.benchmarks.measure import table, write_json

PAPER = {"init": "random", "rho": 0.1, "stop": "paper"}  # the settings of the paper's SNMF_ADMM


def planted_graph(n=90, k=3, *, seed=0, inside=0.4, between=0.02):
    """A symmetric weighted graph of `k` planted groups of consecutive rows, and the groups."""
    random = np.random.default_rng(seed)
    y = np.sort(np.arange(n) % k)
    chance = np.where(y[:, None] == y[None, :], inside, between)
    upper = np.triu((random.random((n, n)) < chance) * random.uniform(0.5, 1.5, (n, n)), 1)
    return sparse.csr_matrix(upper + upper.T), y


def data_folder():
    """Where the data sets of the paper are."""
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("SNMF_DATA", shared))


def data_file(name):
    """A data set of the paper, or a skip that says where it was looked for."""
    folder = data_folder()
    if not (folder / name).exists():
        pytest.skip(f"{name} is not in {folder}; set SNMF_DATA to the folder that has it")
    return folder / name


def write_counts(name, command, titles, line):
    """Put a line into a table of docs/results, if the environment says where that is (SNMF_RESULTS).

    It takes the place of a line with the same first cell. `titles` has the columns, as `measure.table` takes them.
    """
    if "SNMF_RESULTS" not in os.environ:
        return
    path, first = Path(os.environ["SNMF_RESULTS"]) / f"{name}.json", next(iter(titles))
    rows = json.loads(path.read_text())["tables"]["counts"]["rows"] if path.exists() else []
    rows = [row for row in rows if row[first] != line[first]]
    write_json(path, benchmark=name, command=command, tables={"counts": table(titles, [*rows, line])})


def wait_until(true, seconds=600):
    """Wait until `true()` is; the time is for a hang, since machines may be busy."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.5)


def processes_with(text):
    """The numbers of the processes with this text in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(text).encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def assert_a_kill_leaves_nothing(command, folder):
    """Kill a script that keeps servers up for the command behind it: they end, and the next script tidies up."""
    given = {**os.environ, "TMPDIR": str(folder)}
    beside = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)", str(folder)]
    with subprocess.Popen([*command, *beside], env=given, stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout.readline() == "up\n"
        (made,) = folder.glob("snmf-deploy-*")
        assert processes_with(made), "servers"
        script.kill()
    wait_until(lambda: not processes_with(folder))  # neither the servers nor the command
    done = subprocess.run([*command, "true"], env=given, capture_output=True, text=True, timeout=400, check=True)
    assert f"{made} was left by a process that was killed; it is removed" in done.stderr
    assert list(folder.iterdir()) == []
