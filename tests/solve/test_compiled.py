"""The compiled kernels equal their plain NumPy twins, which are here."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from snmf_dist.halo import Block, padded
from snmf_dist.solve import compiled, sweeps, vector


@st.composite
def problems(draw, widest=70):
    """Rows of A with columns [own | halo], and B; empty rows, no rows, K = 1 and both precisions among them."""
    rows, halo = draw(st.integers(1, 150)), draw(st.integers(0, 40))
    K = draw(st.integers(1, widest))
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    type = draw(st.sampled_from([np.float32, np.float64]))
    S = sparse.random(rows, rows + halo, draw(st.sampled_from([0, 0.02, 0.3])), "csr", random_state=random)
    A = Block(S.indptr.astype(np.int64), padded(S.indices), S.data.astype(type))
    B = random.standard_normal((rows + halo, K)).astype(type)
    return S, A, B[:rows].copy(), B[rows:].copy(), random


def tolerance(X):
    return {"rtol": 0, "atol": 2e-4 if X.dtype == np.float32 else 1e-11}


@settings(deadline=None, max_examples=150)
@given(problems())
def test_a_product_is_the_product(problem):
    S, A, own, halo, _ = problem
    out = np.full_like(own, np.nan)
    sweeps.product_rows(A, own, halo, out=[out])
    assert_allclose(out, S @ np.concatenate([own, halo]), **tolerance(own))


@settings(deadline=None, max_examples=50)
@given(problems(), st.booleans())
def test_a_chebyshev_step_is_its_recurrence(problem, in_place):
    S, A, own, halo, random = problem
    W = random.standard_normal(own.shape).astype(own.dtype)
    expected = 0.7 * (S @ np.concatenate([own, halo]) - 0.3 * own) - 0.2 * W
    out = W if in_place else np.full_like(own, np.nan)
    sweeps.chebyshev_rows(A, own, halo, own, W, centre=0.3, scale=0.7, back=0.2, out=[out])
    assert_allclose(out, expected, **tolerance(own))


def halves(S, own, halo, old, inverse, rho, omega):
    """One iteration of ADMM on these rows, in NumPy: X from Y = [own | halo], then Y, L, Λ, Γ, as if it were X."""
    X0, L0, Lam0, Gam0 = old
    K = inverse.shape[-1]
    wide = np.repeat(rho, K)
    M = sparse.block_diag(list(inverse)).toarray()
    B = np.concatenate([own, halo])
    X = (S @ B + wide * L0 + Lam0) @ M
    Y = X0 + omega * ((S @ B + wide * L0 + Gam0) @ M - X0)
    L = 0.5 * np.maximum(own + Y - (Lam0 + Gam0) / wide, 0)
    Lam, Gam = Lam0 + wide * (L - own), Gam0 + wide * (L - Y)

    def squares(*terms):
        return np.array([[np.sum(part**2) for part in np.split(term, len(rho), axis=1)] for term in terms])

    def grams(X):
        return np.array([part.T @ part for part in np.split(X, len(rho), axis=1)])

    first = squares(X - X0, X0)
    second = squares(Y - X0, X0, L - L0, L0, L - own, L - Y, L, Lam, Gam)
    return X, (grams(X), first), (Y, L, Lam, Gam), (grams(Y), second)


@settings(deadline=None, max_examples=100)
@given(problems(widest=24), st.integers(1, 3), st.booleans(), st.sampled_from([1.0, 1.6]))
def test_the_halves_of_an_iteration_are_their_formulas(problem, runs, in_place, omega):
    S, A, own, halo, random = problem
    K = own.shape[1]
    own, halo = np.tile(own, runs), np.tile(halo, runs)
    old = [random.standard_normal(own.shape).astype(own.dtype) for _ in range(4)]
    inverse, rho = random.standard_normal((runs, K, K)), random.uniform(0.1, 2, runs)
    X, sums_X, rest, sums_Y = halves(S, own, halo, [x.astype(float) for x in old], inverse, rho, omega)
    scale = max(1.0, *(float(np.abs(x).max()) for x in (X, *rest)))
    close = {"rtol": 2e-4 if own.dtype == np.float32 else 1e-10, "atol": tolerance(own)["atol"] * scale}

    X0, L0, Lam0, Gam0 = (x.copy() for x in old)
    out = X0 if in_place else np.empty_like(own)
    found = sweeps.first_half(A, own, halo, L0, Lam0, X0, inverse=inverse, rho=rho, out=[out])
    assert_allclose(out, X, **close)
    for one, expected in zip(found, sums_X, strict=True):
        assert_allclose(one, expected, rtol=close["rtol"], atol=close["atol"] * scale * len(own))

    Y0 = old[0].copy()
    out = [Y0, L0, Lam0, Gam0] if in_place else [np.empty_like(own) for _ in range(4)]
    small = {"inverse": inverse, "rho": rho, "omega": np.full(runs, omega)}
    found = sweeps.second_half(A, own, halo, own, L0, Lam0, Gam0, Y0, **small, out=out)
    for one, expected in zip(out, rest, strict=True):
        assert_allclose(one, expected, **close)
    for one, expected in zip(found, sums_Y, strict=True):
        assert_allclose(one, expected, rtol=close["rtol"], atol=close["atol"] * scale * len(own))
    assert_array_equal(sweeps.gram_sums(out[0], runs=runs)[0], found[0])


@settings(deadline=None, max_examples=50)
@given(problems(widest=24), st.integers(1, 3))
def test_quality_is_its_formula(problem, runs):
    S, A, own, halo, random = problem
    own, halo = np.tile(np.abs(own), runs), np.tile(halo, runs)
    G = random.standard_normal((runs, own.shape[1] // runs, own.shape[1] // runs))
    scale = random.uniform(0.5, 2, runs)
    inner, residual = sweeps.quality_rows(A, own, halo, own, sums=(G,), scale=scale, out=[])
    AL = np.split(S @ np.concatenate([own, halo]).astype(float), runs, axis=1)
    for r, L in enumerate(np.split(own.astype(float), runs, axis=1)):
        distance = L - np.maximum(L - (L @ G[r] - AL[r]) / scale[r], 0)
        close = {"rel": 1e-3 if own.dtype == np.float32 else 1e-9, "abs": tolerance(own)["atol"] * len(own)}
        assert inner[r] == pytest.approx(np.sum(L * AL[r]), **close)
        assert residual[r] == pytest.approx(np.sum(distance**2), **close)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 70), st.integers(1, 3), st.integers(0, 2**31), st.floats(1e-3, 1e3))
def test_a_ridge_inverse_is_the_inverse(K, runs, seed, scale):
    X = np.random.default_rng(seed).standard_normal((runs, 2 * K, K)) * scale
    G, rho = X.swapaxes(1, 2) @ X, np.linspace(0.1, 2, runs)
    found = sweeps.ridge_inverse((G, None), rho=rho)
    for inverse, one, penalty in zip(found, G, rho, strict=True):
        assert_allclose(inverse @ (one + penalty * np.eye(K)), np.eye(K), atol=1e-7)
        assert_array_equal(inverse, inverse.T)


@pytest.mark.parametrize(
    "bad", [np.nan, np.inf, 2.0**100]
)  # the last is so large that the penalty is lost beside it
def test_a_run_without_a_ridge_inverse_is_nan_and_the_others_are_not(bad):
    G = np.stack([np.full((3, 3), bad), np.ones((3, 3)), np.diag([1, 1, bad])])
    found = sweeps.ridge_inverse((G,), rho=np.ones(3))
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()
    assert np.isfinite(found[2]).all() == np.isfinite(bad)


@pytest.mark.parametrize("type", [np.float32, np.float64])
def test_a_run_that_overflowed_keeps_its_factor(type):
    A = Block(np.array([0, 1, 2]), padded(np.array([1, 0])), np.ones(2, dtype=type))
    own = np.ones((2, 4), dtype=type)  # two runs of two columns
    L, rest = np.arange(8, dtype=type).reshape(2, 4), [np.ones((2, 4), dtype=type) for _ in range(3)]
    inverse = np.stack([np.full((2, 2), np.nan), np.eye(2)])
    out = [rest[2], L, rest[0], rest[1]]
    small = {"inverse": inverse, "rho": np.ones(2), "omega": np.ones(2)}
    gram, squares = sweeps.second_half(A, own, own[:0], own, L, *rest, **small, out=out)
    assert_array_equal(out[1][:, :2], [[0, 1], [4, 5]])
    assert np.isfinite(out[1]).all()
    assert np.isnan(gram[0]).all()
    assert np.isnan(squares[:, 0]).all()
    assert np.isfinite(gram[1]).all()


@pytest.mark.parametrize("type", [np.float32, np.float64])
def test_what_is_not_finite_stays_so(type):
    A = Block(np.array([0, 1]), padded(np.array([0])), np.array([1], dtype=type))
    for bad in (np.nan, np.inf):
        own, out = np.full((1, 3), bad, dtype=type), np.zeros((1, 3), dtype=type)
        sweeps.product_rows(A, own, own[:0], out=[out])
        assert not np.isfinite(out).any()
        gram, squares = sweeps.first_half(
            A, own, own[:0], own, own, own, inverse=np.eye(3)[None], rho=np.ones(1), out=[out]
        )
        assert not np.isfinite(out).any()
        assert not np.isfinite(gram).any()
        assert not np.isfinite(squares).any()


def test_kernels_kept_on_disk_are_not_those_of_another_vector_module():
    found = hashlib.sha256(Path(vector.__file__).read_bytes()).hexdigest()
    assert found == compiled.MADE_OF, "vector.py was changed: put its SHA-256 into compiled.MADE_OF"
