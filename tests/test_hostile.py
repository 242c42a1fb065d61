"""Files that lie: nothing in them crashes the process, runs code, or takes memory that is not there."""

import json
import os
import resource
import shutil
import subprocess
import sys
import traceback
import zipfile
from pathlib import Path
from types import SimpleNamespace

import fsspec
import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal
from scipy import sparse

import snmf_dist
from snmf_dist import Status, errors, storage
from snmf_dist.graph.store import BlockRecord, GraphWriter
from snmf_dist.graph.store.layout import CSR_ENCODING
from snmf_dist.solve.stopping import Judge, Quality, largest_eigenvalues
from tests.helpers import planted_graph


def edit_json(path, change):
    root = json.loads(Path(path).read_text())
    change(root)
    Path(path).write_text(json.dumps(root))


def forged(path, change):
    """A store with right checksums whose blocks were changed before they were written."""
    W, _ = planted_graph(30, 3)
    W = W.tocsr()
    change(W)
    writer = GraphWriter(str(path), np.array([0, 30]), np.dtype(np.float32))
    group = writer._group
    block = group.create_group("blocks/0")
    arrays = (W.data.astype(np.float32), W.indices.astype(np.int32), W.indptr.astype(np.int64))
    for name, values in zip(("data", "indices", "indptr"), arrays, strict=True):
        storage.write_vector(block, name, values)
    block.attrs.update({**CSR_ENCODING, "shape": [30, 30]})
    record = [len(arrays[0]), storage.checksum(*arrays), 0, 0, 0, 0]
    writer.finish([BlockRecord(*record)], degree=np.ones(30), normalize="ncut", made={})
    return path


@pytest.mark.parametrize(
    ("where", "value"), [("indices", 30), ("indices", -1), ("indices", 2**31 - 1), ("indptr", 2**20)]
)
def test_a_forged_block_does_not_reach_the_kernels(tmp_path, where, value):
    def change(W):
        getattr(W, where)[5] = value

    path = forged(tmp_path / "g.zarr", change)
    with pytest.raises(errors.StoreCorrupt, match=r"block 0 \(rows 0:30\) has an entry outside A"):
        snmf_dist.fit(path, 3)
    with pytest.raises(errors.StoreCorrupt, match="has an entry outside A"):
        snmf_dist.open_graph(path).validate(deep=True)


@pytest.mark.parametrize("name", ["blocks/1/data", "blocks/1/indptr", "order", "degree", "row_bounds"])
def test_an_array_that_claims_too_much_is_refused_before_it_is_read(graph, name):
    edit_json(f"{graph.path}/{name}/zarr.json", lambda root: root.update(shape=[10**9]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(errors.StoreCorrupt, match=rf"{name} .* has shape \(1000000000,\)"):
        snmf_dist.open_graph(graph.path).validate(deep=True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_rewritten_degrees_change_no_labels_silently(graph):
    degree = zarr.open_group(graph.path, mode="r+")["degree"]
    degree[3] = degree[3] * 5
    with pytest.raises(
        errors.StoreCorrupt, match=r"degree is not what was written.*import or build the graph again"
    ):
        snmf_dist.fit(snmf_dist.open_graph(graph.path), 3)


@pytest.mark.parametrize("name", ["membership", "state-L", "history", "labels"])
@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_torn_document_of_a_result_is_named(graph, tmp_path, name, text):
    snmf_dist.fit(graph, 3, rho=0.3, out=tmp_path / "r.zarr", save_state=True)
    (tmp_path / "r.zarr" / name / "zarr.json").write_text(text)
    with pytest.raises(errors.StoreCorrupt, match=rf"{name} .*; fit again with overwrite=True"):
        snmf_dist.open_solution(tmp_path / "r.zarr").validate()


def test_points_and_matrices_with_indices_outside_are_refused(tmp_path):
    W = planted_graph(30, 3)[0].tocsr()
    W.indices[7] = 2**30
    sparse.save_npz(tmp_path / "w.npz", W)
    for source in (W, tmp_path / "w.npz"):
        with pytest.raises(errors.InputError, match="is not a valid sparse matrix"):
            snmf_dist.import_graph(source, tmp_path / "g.zarr")
        with pytest.raises(errors.InputError, match="is not a valid sparse matrix"):
            snmf_dist.build_graph(source, tmp_path / "g.zarr")


@pytest.mark.parametrize("last", [10**18, 2**62])
def test_endless_ids_are_refused_before_anything_is_made(tmp_path, last):
    src, dst = np.array([0, 1, 2]), np.array([1, 2, last])
    np.savez(tmp_path / "e.npz", src=src, dst=dst)
    (tmp_path / "e.csv").write_text("".join(f"{i},{j},1\n" for i, j in zip(src, dst, strict=True)))
    head = f"%%MatrixMarket matrix coordinate real symmetric\n{last} {last} 1\n"
    (tmp_path / "e.mtx").write_text(head + "2 1 1.0\n")
    for name in ("e.npz", "e.csv", "e.mtx"):
        with pytest.raises((errors.InputError, errors.DoesNotFit), match="number the nodes from 0 without gaps"):
            snmf_dist.import_graph(tmp_path / name, tmp_path / "g.zarr", symmetrize="max", ids="rows")
    A = sparse.coo_array((np.ones(3), (src, dst)), shape=(last + 1, last + 1))
    with pytest.raises(errors.DoesNotFit, match="number the nodes from 0 without gaps"):
        snmf_dist.import_graph(A, tmp_path / "g.zarr")


@pytest.mark.parametrize("shape", [(10**12, 3), (10**12, 10**6), (300, 10**12)])
def test_points_that_claim_an_endless_shape_are_refused_before_anything_is_made(tmp_path, shape):
    zarr.create_array(tmp_path / "x.zarr", shape=shape, chunks=tuple(min(s, 10**6) for s in shape), dtype="f4")
    with pytest.raises(errors.DoesNotFit, match=r"x\.zarr: has shape .* more than this machine has"):
        snmf_dist.build_graph(tmp_path / "x.zarr", tmp_path / "g.zarr")


@pytest.mark.parametrize("size", [0, 100, 2**31 - 1])
def test_points_whose_chunks_are_damaged_are_named(tmp_path, size):
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(300, 3), chunks=(300, 3), dtype="f8", compressors=storage.CODEC
    )
    array[:] = np.random.default_rng(0).normal(size=(300, 3))
    chunk = tmp_path / "x.zarr/c/0/0"
    raw = bytearray(chunk.read_bytes())
    raw[4:8] = size.to_bytes(4, "little")  # what the chunk claims to unpack to
    chunk.write_bytes(raw)
    with pytest.raises(errors.InputError, match=r"x\.zarr: rows 0:300 cannot be read"):
        snmf_dist.build_graph(tmp_path / "x.zarr", tmp_path / "g.zarr")


def test_a_matrix_market_head_that_claims_too_many_entries(tmp_path):
    (tmp_path / "e.mtx").write_text("%%MatrixMarket matrix coordinate real symmetric\n9 9 1000000000\n2 1 1.0\n")
    with pytest.raises(errors.InputError, match="claims 1000000000 entries, more than it has bytes"):
        snmf_dist.import_graph(tmp_path / "e.mtx", tmp_path / "g.zarr")


@pytest.mark.parametrize("use", [snmf_dist.import_graph, snmf_dist.build_graph])
def test_an_archive_that_unpacks_to_more_than_memory_is_refused(tmp_path, monkeypatch, use):
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", b"\0" * 10_000_000)
    monkeypatch.setattr("snmf_dist.engine.machine.memory", lambda: 10_000_000)
    with pytest.raises(errors.DoesNotFit, match=r"takes 0\.0 MB and unpacks to 0\.0 GB"):
        use(tmp_path / "bomb.npz", tmp_path / "g.zarr")


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_no_file_runs_code(tmp_path):
    from numcodecs import Pickle

    trap = str(tmp_path / "trapped")
    np.save(tmp_path / "x.npy", np.array([[Trap(trap)]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", X=np.array([[Trap(trap)]], dtype=object))
    old = zarr.create_array(
        tmp_path / "x.zarr", shape=(4, 2), dtype="f8", zarr_format=2, compressors=None, filters=[Pickle()]
    )
    (tmp_path / "x.zarr/0.0").write_bytes(Pickle().encode(np.array([Trap(trap)], dtype=object)))
    assert old.shape == (4, 2)
    for name in ("x.npy", "x.npz", "x.zarr"):
        with pytest.raises(errors.SnmfError):
            snmf_dist.fit(tmp_path / name, 2)
        with pytest.raises(errors.SnmfError):
            snmf_dist.build_graph(tmp_path / name, tmp_path / "g.zarr")
    assert not os.path.exists(trap)


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4"])
def test_the_byte_order_of_the_input_changes_nothing(tmp_path, dtype):
    W = np.round(planted_graph()[0].toarray() * 4)
    swapped = snmf_dist.import_graph(W.astype(dtype), tmp_path / "a.zarr")
    plain = snmf_dist.import_graph(W, tmp_path / "b.zarr")
    assert swapped.fingerprint == plain.fingerprint
    X = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
    one = snmf_dist.build_graph(X.astype(">f4"), tmp_path / "c.zarr")
    assert one.fingerprint == snmf_dist.build_graph(X, tmp_path / "d.zarr").fingerprint


def test_an_asynchronous_client_is_refused_by_name(graph, tmp_path, monkeypatch):
    def current():
        return SimpleNamespace(asynchronous=True)

    monkeypatch.setattr("snmf_dist.engine.client.current_client", current)
    monkeypatch.setattr("snmf_dist.graph.build.building.current_client", current)
    for attempt in (
        lambda: snmf_dist.fit(graph, 3),
        lambda: snmf_dist.plan_fit(graph, 3),
        lambda: snmf_dist.build_graph(np.ones((9, 2)), tmp_path / "g.zarr"),
    ):
        with pytest.raises(errors.InputError, match="the current Dask client is asynchronous"):
            attempt()


@pytest.mark.parametrize("stop", ["auto", "paper", "kkt"])
@pytest.mark.parametrize("captured", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("verdict", [None, Status.CONVERGED, Status.MAX_ITER])
def test_a_run_whose_captured_energy_is_not_finite_has_diverged(stop, captured, verdict):
    judged = Judge(stop, 1e-5).of_look(
        1, verdict, Quality(objective=np.nan, captured=captured, kkt=0.0, moved=0.0)
    )
    assert judged is Status.DIVERGED


def test_grams_that_overflowed_do_not_end_a_run():
    assert_array_equal(largest_eigenvalues(np.stack([np.full((2, 2), np.inf), np.eye(2) * 3])), [1, 3])


@pytest.mark.parametrize("rho", [1e-320, 1e-45, 1e300])
def test_a_penalty_beyond_the_dtype_is_refused(tmp_path, rho):
    graph = snmf_dist.import_graph(planted_graph()[0], tmp_path / "g.zarr")
    with pytest.raises(errors.InputError, match=r"rho is .* for a float32 graph"):
        snmf_dist.fit(graph, 3, rho=rho)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e200])
def test_weights_whose_squares_cannot_be_told_are_refused(tmp_path, scale):
    with pytest.raises(errors.InputError, match=r"the weights add up to|every weight is zero"):
        snmf_dist.import_graph(planted_graph()[0] * scale, tmp_path / "g.zarr")


class Talkative(fsspec.AbstractFileSystem):
    """A file system whose errors quote the options that it was given."""

    def __init__(self, **options):
        super().__init__(**options)
        self.given = options

    def info(self, path, **how):
        raise PermissionError(f"refused with {self.given}")

    exists = info


def test_an_error_of_an_object_store_does_not_show_keys():
    fsspec.register_implementation("talkative", Talkative, clobber=True)
    options = {"secret": "a-secret-1", "client_kwargs": {"aws_secret_access_key": "a-secret-2", "region": "here"}}
    with pytest.raises(errors.StoreNotFound, match=r"refused with .*'region': 'here'") as raised:
        snmf_dist.import_graph(planted_graph()[0], "talkative://bucket/graph.zarr", storage_options=options)
    assert "a-secret" not in "".join(traceback.format_exception(raised.value))


@pytest.fixture
def read_only_install(tmp_path):
    """The package on a file system that nothing can be written to."""
    place = tmp_path / "install"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system that is read-only for all needs root")
    shutil.copytree(Path(snmf_dist.__file__).parent, place / "snmf_dist", ignore=shutil.ignore_patterns("__py*"))
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_kernels_of_a_read_only_install_without_a_home_are_kept_in_memory_with_a_warning(read_only_install):
    code = """
import warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    from snmf_dist.solve.kernels.compiled import FAST
from numba import njit
print(njit(**FAST)(lambda: 2)())
print("; ".join(str(one.message) for one in seen))
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG"))}
    environment |= {"PYTHONPATH": str(read_only_install), "HOME": "/proc/none"}
    given = {"cwd": read_only_install, "env": environment, "capture_output": True, "text": True, "check": True}
    answer, said = subprocess.run([sys.executable, "-c", code], **given).stdout.splitlines()
    assert answer == "2"
    assert said.startswith("compiled kernels cannot be kept: neither the folder of snmf_dist nor a home folder")


@pytest.fixture
def old_stores(tmp_path):
    """A graph and a result as version 0.1 wrote them."""
    with zipfile.ZipFile(Path(__file__).parent / "formats/0.1.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_stores_of_the_first_version_stay_readable(old_stores):
    graph, result = (
        snmf_dist.open_graph(old_stores / "graph.zarr"),
        snmf_dist.open_solution(old_stores / "result.zarr"),
    )
    graph.validate(deep=True)
    result.validate()
    assert "chunk_checksums" not in graph.block
    assert_array_equal(graph.read_degree(7, 31), graph.degree[7:31])
    assert_array_equal(np.bincount(result.labels), [20, 20, 20])
    assert_array_equal(snmf_dist.fit(graph, 3, rho=0.3).labels, result.labels)
    assert snmf_dist.fit(graph, 3, rho=0.3, init=result).status.converged


def test_degrees_of_the_first_version_are_checked_too(old_stores):
    degree = zarr.open_group(old_stores / "graph.zarr", mode="r+")["degree"]
    degree[3] = degree[3] * 5
    with pytest.raises(errors.StoreCorrupt, match="degree is not what was written"):
        snmf_dist.open_graph(old_stores / "graph.zarr").read_degree(40, 50)
