"""Every file of a graph store, a result and a checkpoint, damaged: `check` finds it, or nothing changes."""

import os
import random
import shutil

import numpy as np
import pytest

import snmf_dist
from snmf_dist import errors, storage
from snmf_dist.graph.store import GraphWriter
from snmf_dist.ids import make_ids
from snmf_dist.result import files
from snmf_dist.result.checkpoints import CheckpointFolder
from tests.helpers import planted_graph, write_counts
from tests.test_checkpoints import StopAt

DAMAGES = {
    "truncate": 3,
    "flip": 3,
    "delete": 1,
    "empty": 1,
    "swap": 3,
    "swap with its like": 3,
    "of another run": 1,
}
KINDS = ("graph", "result", "checkpoint")
SAMPLE = 90  # cases of the normal suite
TITLES = {
    "kind": "what is damaged",
    "files": "files",
    "cases": "damages",
    "detected": "detected",
    "harmless": "harmless: the same answer",
    "nothing done": "left the bytes as they were",
    "wrong": "wrong answers",
    "raw": "other errors",
}


def write_graph(path, seed):
    """A graph of 60 rows in 3 blocks, its rows in another order than the input's, its vectors in two chunks."""
    W, _ = planted_graph(60, 3, seed=seed)
    plain = snmf_dist.import_graph(W, f"{path}.plain", dtype="float64", block_rows=20)
    order = np.random.default_rng(seed).permutation(60)
    A = plain.read_rows(0, 60)[order][:, order].tocsr()
    A.sort_indices()
    ids = make_ids([f"{seed}-{i}" for i in range(60)])
    writer = GraphWriter(str(path), plain.bounds, plain.dtype)
    records = [writer.write_block(i, A[20 * i : 20 * i + 20]) for i in range(3)]
    writer.finish(records, degree=plain.degree[order], order=order, normalize="ncut", made={"seed": seed}, ids=ids)
    return str(path)


def fit(graph, **settings):
    return snmf_dist.fit(graph, 3, **{"rho": 0.3, "max_iter": 30, "listeners": []} | settings)


def begin(graph, **settings):
    """A run that can be continued: its checkpoints hold a start, labels and a state."""
    given = {"rho": 0.3, "init": "spectral", "stop": "paper", "tol": 1e-9, "max_iter": 30}
    return snmf_dist.fit(graph, 3, **given, **settings)


def told(solution):
    """All that a solution tells, as bytes."""
    arrays = [solution.labels, solution.membership, *(solution.state or ())]
    facts = repr(
        (list(solution.ids), solution.history, solution.status, dict(solution.settings), dict(solution.provenance))
    )
    return b"".join(np.asarray(array).tobytes() for array in arrays) + facts.encode()


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Two graphs and their results, which differ by their seed, and the right answer of the first."""
    folder = tmp_path_factory.mktemp("damage")
    patch = pytest.MonkeyPatch()
    patch.setattr(storage, "CHUNK", 35)
    patch.setattr(files, "CHUNK_ENTRIES", 90)
    for seed in (0, 1):
        graph = write_graph(folder / f"graph-{seed}.zarr", seed)
        fit(graph, save_state=True, out=folder / f"result-{seed}.zarr")
        with pytest.raises(ZeroDivisionError):
            begin(graph, out=folder / f"checkpoint-{seed}.zarr", checkpoint_every=4, listeners=[StopAt(13)])
    patch.undo()
    right = [run(f"{folder}/graph-0.zarr", listeners=[]) for run in (fit, begin)]
    return folder, *(np.asarray(solution.membership).tobytes() for solution in right)


def names(folder):
    return sorted(
        os.path.relpath(os.path.join(place, name), folder) for place, _, some in os.walk(folder) for name in some
    )


def store_of(kind, seed=0):
    return f"{kind}-{seed}.zarr" + ("" if kind != "checkpoint" else ".checkpoint")


def cases(kind, folder):
    found = names(folder / store_of(kind))
    return [
        (kind, name, damage, seed) for name in found for damage, times in DAMAGES.items() for seed in range(times)
    ]


def harm(store, other, name, damage, seed):
    """Damage a file; False if that changes nothing."""
    dice = random.Random(f"{name} {damage} {seed}")
    path = f"{store}/{name}"
    with open(path, "rb") as file:
        before = file.read()
    others = [one for one in names(store) if one != name]
    if damage == "swap with its like":
        others = [one for one in others if os.path.basename(one) == os.path.basename(name)] or others
    if damage == "delete":
        os.remove(path)
        return True
    if damage == "truncate":
        after = before[: dice.randrange(len(before))]
    elif damage == "flip":
        at = dice.randrange(len(before))
        after = before[:at] + bytes([before[at] ^ (1 << dice.randrange(8))]) + before[at + 1 :]
    elif damage == "empty":
        after = b""
    elif damage == "of another run":
        if not os.path.exists(f"{other}/{name}"):
            return False
        with open(f"{other}/{name}", "rb") as file:
            after = file.read()
    else:
        partner = f"{store}/{dice.choice(others)}"
        with open(partner, "rb") as file:
            after = file.read()
        with open(partner, "wb") as file:
            file.write(before)
    with open(path, "wb") as file:
        file.write(after)
    return after != before


def believed(action):
    """What an action returns; None if the package refuses with an error of its own. Other errors go through."""
    try:
        return action()
    except errors.SnmfError:
        return None


def check_graph(path):
    snmf_dist.open_graph(path).validate(deep=True)
    return True


def check_checkpoints(path):
    CheckpointFolder(str(path), "", {}).validate()
    return True


def check_result(path):
    snmf_dist.open_solution(path).validate()
    return True


def outcome(stores, tmp_path, kind, name, damage, seed):
    """Damage a copy of a store and use it: "detected", "harmless" or "nothing done"."""
    folder, answer, continued = stores
    store = tmp_path / ("store.zarr" if kind != "checkpoint" else "store.zarr.checkpoint")
    for old in (tmp_path / "store.zarr", store):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(folder / store_of(kind), store)
    if kind == "result":
        answer = told(snmf_dist.open_solution(store))
    if not harm(store, folder / store_of(kind, 1), name, damage, seed):
        return "nothing done"
    if kind == "graph":
        found = believed(lambda: np.asarray(fit(store).membership).tobytes())
        whole = believed(lambda: check_graph(store))
    elif kind == "checkpoint":
        whole = believed(lambda: check_checkpoints(store))
        answer, out = continued, tmp_path / "store.zarr"
        found = believed(
            lambda: np.asarray(begin(f"{folder}/graph-0.zarr", out=out, listeners=[]).membership).tobytes()
        )
    else:
        found = believed(lambda: told(snmf_dist.open_solution(store)))
        whole = believed(lambda: check_result(store))
    assert found in (None, answer), f"{kind} {name} {damage} {seed}: a wrong answer"
    assert found == answer or not whole, f"{kind} {name} {damage} {seed}: check did not find it"
    return "harmless" if whole else "detected"


def run(stores, tmp_path, chosen):
    counts = {"detected": 0, "harmless": 0, "nothing done": 0}
    for case in chosen:
        try:
            counts[outcome(stores, tmp_path, *case)] += 1
        except Exception as error:
            error.add_note(f"case: {case}")
            raise
    print(len(chosen), "cases:", counts)
    return counts


@pytest.mark.filterwarnings("ignore")
def test_a_sample_of_damages_is_detected_or_harmless(stores, tmp_path):
    every = [case for kind in KINDS for case in cases(kind, stores[0])]
    counts = run(stores, tmp_path, random.Random(0).sample(every, SAMPLE))
    assert counts["detected"] > SAMPLE / 2


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("ignore")
def test_every_damage_of_every_file_is_detected_or_harmless(stores, tmp_path):
    for kind in KINDS:
        every = cases(kind, stores[0])
        counts = run(stores, tmp_path, every)  # a wrong answer, and an error that is not ours, ends the test
        assert counts["detected"] > len(every) / 2
        files = len({name for _, name, _, _ in every})
        line = {"kind": kind, "files": files, "cases": len(every), **counts, "wrong": 0, "raw": 0}
        write_counts("damage", "pytest -m slow tests/test_damage.py", TITLES, line)
