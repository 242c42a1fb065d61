import json
import os

import numpy as np
import pytest
import zarr
from distributed import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

import snmf_dist
from snmf_dist import IterationRecord, Status, errors
from snmf_dist.result import files

RECORDS = [
    IterationRecord(1, 3.0, 2.0, 1.0, 0.1, 3, 0.5, 9.0, 8.0, 0.1),
    IterationRecord(2, 1.0, 1.0, 1.0, 0.1, 5, 1.0),
]


@pytest.fixture
def saved(graph, tmp_path):
    return snmf_dist.fit(graph, 3, rho=0.3, out=tmp_path / "result.zarr"), tmp_path / "result.zarr"


def test_a_saved_solution_reads_back_as_it_was(saved):
    solution, path = saved
    again = snmf_dist.open_solution(path)
    assert_array_equal(again.labels, solution.labels)
    assert_array_equal(again.membership.compute(), solution.membership.compute())
    assert again.status is solution.status
    assert again.settings == solution.settings
    assert again.provenance == solution.provenance
    assert repr(again.history) == repr(solution.history)  # NaN included
    assert (again.captured, again.kkt, again.n_iter) == (solution.captured, solution.kkt, solution.n_iter)
    assert repr(again) == repr(solution)
    again.validate()


def test_a_result_can_be_saved_from_a_cluster_and_read_anywhere(graph, tmp_path, two_processes):
    with Client(two_processes):
        solution = snmf_dist.fit(graph, 3, rho=0.3, tol=1e-3)
        solution.save(tmp_path / "r.zarr")
        L = solution.membership.compute()
    assert_array_equal(snmf_dist.open_solution(tmp_path / "r.zarr").membership.compute(), L)


def test_provenance_names_the_graph_and_the_versions(saved, graph):
    provenance = saved[0].provenance
    assert provenance["fingerprint"] == graph.fingerprint
    assert provenance["graph"] == graph.path
    assert provenance["versions"]["snmf-dist"] == snmf_dist.__version__


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=20),
        elements=st.floats(0, 1, width=32),
    ),
    st.integers(1, 30),
)
def test_any_membership_round_trips_whatever_its_chunks(tmp_path, monkeypatch, L, entries):
    monkeypatch.setattr(files, "CHUNK_ENTRIES", entries)
    labels = np.arange(len(L), dtype=np.int32) % L.shape[1]
    parts = files.ResultParts(L, labels, RECORDS, Status.MAX_ITER, {"k": L.shape[1]}, {})
    files.write_result(str(tmp_path / "r.zarr"), parts, overwrite=True)
    found = files.read_result(str(tmp_path / "r.zarr"))
    assert found.membership.dtype == L.dtype
    assert_array_equal(found.membership.compute(), L)
    assert_array_equal(found.labels, labels)
    assert repr(found.history) == repr(RECORDS)


def test_a_result_that_was_not_finished_is_refused(saved):
    path = saved[1]
    root = json.loads((path / "zarr.json").read_text())
    root["attributes"]["snmf_dist"]["complete"] = False
    (path / "zarr.json").write_text(json.dumps(root))
    with pytest.raises(errors.StoreIncomplete, match="result store was not finished"):
        snmf_dist.open_solution(path)


def test_a_lost_or_changed_chunk_is_never_believed(saved):
    path = saved[1]
    os.remove(path / "membership/c/0/0")
    with pytest.raises(errors.StoreCorrupt, match="rows 0:90 of membership is not what was written"):
        snmf_dist.open_solution(path).membership.compute()
    zarr.open_group(path, mode="r+")["labels"][3] = 2
    zarr.open_group(path, mode="r+")["labels"][4] = 1
    with pytest.raises(errors.StoreCorrupt, match="labels is not what was written"):
        snmf_dist.open_solution(path)


def test_nothing_at_the_path(tmp_path):
    with pytest.raises(errors.StoreNotFound):
        snmf_dist.open_solution(tmp_path / "none.zarr")


def test_every_status_is_a_sentence_that_says_what_to_do():
    for status in Status:
        assert len(status.value.split()) > 5
        assert status.value[0].islower()
    done = [status.name for status in Status if status.converged]
    assert done == ["CONVERGED", "STATIONARY", "SETTLED", "PEAKED"]


def test_a_replaced_result_is_not_mixed_with_the_one_that_was_opened(saved, graph):
    _, path = saved
    opened = snmf_dist.open_solution(path)
    snmf_dist.fit(graph, 3, rho=0.3, seed=9, out=path, overwrite=True)
    with pytest.raises(errors.StoreCorrupt, match="replaced since it was opened; open it again"):
        opened.membership.compute()
