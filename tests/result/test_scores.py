import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import snmf_dist
from snmf_dist import errors
from snmf_dist.result.scores import read_labels

pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)


@settings(deadline=None)
@given(pairs)
def test_accuracy_is_the_best_over_all_matchings(pairs):
    labels, truth = (np.array(column) for column in zip(*pairs, strict=True))
    matchings = itertools.permutations(range(4))
    best = max(np.mean(np.array(matching)[labels] == truth) for matching in matchings)
    assert snmf_dist.score(labels, truth).accuracy == pytest.approx(best)


def test_scores_of_a_known_case():
    scores = snmf_dist.score(np.array([0, 0, 0, 1, 1, 1]), np.array(["a", "a", "b", "b", "b", "b"]))
    assert scores.accuracy == pytest.approx(5 / 6)
    assert scores.purity == pytest.approx(5 / 6)
    assert scores.ari == pytest.approx(0.3243243)
    assert scores.nmi == pytest.approx(0.4784, abs=1e-3)


def test_rows_in_no_cluster_count_as_wrong():
    scores = snmf_dist.score(np.array([0, 0, -1, -1]), np.array([0, 0, 1, 1]))
    assert scores.accuracy == 0.5
    assert scores.purity == 0.5


def test_labels_of_another_length_are_refused():
    with pytest.raises(errors.InputError, match=r"\(3,\) labels and \(2,\) known"):
        snmf_dist.score(np.zeros(3, int), np.zeros(2, int))


def test_labels_are_read_from_each_kind_of_file(tmp_path):
    y = np.array([2, 0, 1])
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "y.npz", y=y)
    (tmp_path / "y.txt").write_text("cat\ndog\n\ncat\n")
    assert read_labels(str(tmp_path / "y.npy"), n=3).tolist() == [2, 0, 1]
    assert read_labels(str(tmp_path / "y.npz"), n=3).tolist() == [2, 0, 1]
    assert read_labels(str(tmp_path / "y.txt"), n=3).tolist() == ["cat", "dog", "cat"]
    np.savez(tmp_path / "x.npz", x=y)
    for name, n, words in [
        ("x.npz", 3, "array named y"),
        ("y.npy", 4, r"expected \(4,\)"),
        ("z", 3, "no such"),
    ]:
        with pytest.raises(snmf_dist.SnmfError, match=words):
            read_labels(str(tmp_path / name), n=n)
