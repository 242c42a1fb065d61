"""Strange inputs and settings through the public functions, in processes of their own: none of them crashes.

Each case ends with an error of ours or with an answer that is finite, nonnegative, and not called converged if its
captured energy is not a number. ``python -m tests.fuzz NUMBER 1`` runs a case again.
"""

import ast
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from snmf_dist.result.records import Status
from tests.helpers import write_counts

PROCESSES = 2
TITLES = {
    "what": "what is strange",
    "cases": "cases",
    "refused": "refused in words",
    "answered": "answered",
    "converged": "of these called converged",
    "unexpected": "other errors, crashes, unsound answers",
}
COMMAND = "pytest -m study tests/test_fuzz.py"


def run_cases(first, count, timeout):
    """How each case ended, by its number; a process that a case ends is started again after it."""
    ends, last = {}, first + count
    while first < last:
        command = [sys.executable, "-m", "tests.fuzz", str(first), str(last - first)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, cwd=Path(__file__).parents[1], check=False
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        ends.update({line["end"]: line for line in lines if "end" in line})
        begun = [line["begin"] for line in lines if "begin" in line]
        assert begun, done.stderr[-2000:]
        if begun[-1] not in ends:
            ends[begun[-1]] = {"how": "unexpected", "error": f"the process ended with {done.returncode}"}
        first = begun[-1] + 1
    return ends


def run_all(count, timeout):
    share = -(-count // PROCESSES)
    with ThreadPoolExecutor(PROCESSES) as pool:
        starts = range(0, count, share)
        found = pool.map(lambda first: run_cases(first, min(share, count - first), timeout), starts)
    ends = {number: end for part in found for number, end in part.items()}
    print(len(ends), "cases:", dict(Counter(end["how"] for end in ends.values()).most_common()))
    bad = {number: end for number, end in ends.items() if end["how"] == "unexpected"}
    assert len(ends) == count
    assert not bad, json.dumps(bad, indent=1)
    return ends


def write_line(ends):
    """Write how the cases ended."""
    hows = [end["how"] for end in ends.values()]
    counts = {"refused": sum("refused" in how for how in hows), "unexpected": hows.count("unexpected")}
    converged = sum(how in Status.__members__ and Status[how].converged for how in hows)
    answered = len(hows) - sum(counts.values())
    line = {"what": "graphs, points, settings, stores", "cases": len(hows), **counts}
    write_counts("fuzz", COMMAND, TITLES, {**line, "answered": answered, "converged": converged})


def test_strange_input_ends_in_words_or_in_a_sound_answer():
    run_all(300, timeout=800)


def read_changed_files(count, timeout):
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz_files", "0", str(count)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, cwd=Path(__file__).parents[1], check=False
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-2000:]
    assert "UNEXPECTED" not in done.stdout, done.stdout
    assert f"begin {count - 1} " in done.stdout
    ends = ast.literal_eval(done.stdout.rsplit("done ", 1)[1])
    return {"cases": count, "refused": ends["refused"], "answered": ends["read"], "unexpected": 0}


def test_files_of_other_programs_with_bytes_changed_end_in_words():
    pytest.importorskip("h5py")
    read_changed_files(150, timeout=800)


@pytest.mark.study
@pytest.mark.timeout(3600)
def test_many_files_of_other_programs_with_bytes_changed_end_in_words():
    counts = read_changed_files(5000, timeout=3000)
    write_counts("fuzz", COMMAND, TITLES, {"what": "files of other programs with bytes changed", **counts})


@pytest.mark.study
@pytest.mark.timeout(3600)
def test_much_strange_input_ends_in_words_or_in_a_sound_answer():
    write_line(run_all(5000, timeout=3000))
