import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import snmf_dist
from snmf_dist import SNMF, errors
from snmf_dist.cli.demo import make_points
from tests.helpers import planted_graph


@parametrize_with_checks([SNMF(random_state=0)])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


def test_points_are_clustered_as_by_the_two_functions(tmp_path):
    X, _ = make_points(400)
    found = SNMF(4, n_neighbors=15, random_state=3).fit(X)
    seed = int(np.random.RandomState(3).randint(2**31 - 1))
    graph = snmf_dist.build_graph(X, tmp_path / "g.zarr", neighbors=15, seed=seed)
    expected = snmf_dist.fit(graph, 4, seed=seed)
    np.testing.assert_array_equal(found.labels_, expected.labels)
    np.testing.assert_array_equal(found.membership_, expected.membership.compute())
    assert (found.n_iter_, found.status_) == (expected.n_iter, expected.status)


@pytest.mark.parametrize("kind", [sparse.csr_array, np.asarray])
def test_a_precomputed_matrix_is_the_graph(kind):
    W, y = planted_graph(120, 3, seed=1)
    found = SNMF(3, affinity="precomputed", random_state=0).fit(kind(W.toarray()))
    assert snmf_dist.score(found.labels_, y).accuracy == 1.0
    assert found.status_.converged


def test_an_unfinished_run_warns_as_scikit_learn_does():
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        SNMF(3, init="random", max_iter=3, random_state=0).fit(make_points(400).X)


def test_bad_arguments_are_refused():
    X = make_points(400).X
    with pytest.raises(ValueError, match="affinity is 'rbf'"):
        SNMF(3, affinity="rbf").fit(X)
    with pytest.raises(errors.InputError, match="k is 401; expected 1 to 400"):
        SNMF(401).fit(X)
