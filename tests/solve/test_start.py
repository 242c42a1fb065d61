import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from snmf_dist.solve.kernels import uniform_rows

FLOAT = np.dtype(float)


@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**63))
def test_a_row_of_the_start_depends_on_its_number_and_not_on_its_block(first, rows, K, seed):
    whole = uniform_rows(0, first + rows, K=K, seed=seed, scale=1.0, type=FLOAT)
    block = uniform_rows(first, first + rows, K=K, seed=seed, scale=1.0, type=FLOAT)
    assert_array_equal(block, whole[first:])


def test_seeds_and_rows_differ_and_the_scale_is_kept():
    one = uniform_rows(0, 5000, K=4, seed=1, scale=2.0, type=FLOAT)
    two = uniform_rows(0, 5000, K=4, seed=2, scale=2.0, type=FLOAT)
    assert (one != two).all()
    assert len(np.unique(one)) == one.size
    assert 0 <= one.min() < 0.01
    assert 1.99 < one.max() < 2
    assert abs(one.mean() - 1) < 0.02
