"""Plain kernels are their formulas, fused ones are the plain ones, and a run beside others is a run alone."""

import hashlib
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from snmf_dist.engine.halo import Block, padded
from snmf_dist.errors import InputError
from snmf_dist.solve import kernels
from snmf_dist.solve.kernels import fused, plain, rowwise, simd
from snmf_dist.solve.kernels.stacked import spans

BOTH = (plain, fused)
SWEEPS = (
    "product",
    "chebyshev_step",
    "update_X",
    "update_rest",
    "quality",
    "gram",
    "weight_inside",
    "group_weights",
)
TYPES = [np.float32, np.float64]
both = pytest.mark.parametrize("module", BOTH, ids=["plain", "fused"])


@st.composite
def problems(draw, widest=70):
    """Rows of A with columns [own | halo], and B; empty rows, no halo, K = 1 and both precisions among them."""
    rows, halo = draw(st.integers(1, 150)), draw(st.integers(0, 40))
    K = draw(st.integers(1, widest))
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    type = draw(st.sampled_from(TYPES))
    S = sparse.random(rows, rows + halo, draw(st.sampled_from([0, 0.02, 0.3])), "csr", random_state=random)
    A = Block(S.indptr.astype(np.int64), padded(S.indices), S.data.astype(type))
    B = random.standard_normal((rows + halo, K)).astype(type)
    return S, A, B[:rows].copy(), B[rows:].copy(), random


def tolerance(X):
    return {"rtol": 0, "atol": 2e-4 if X.dtype == np.float32 else 1e-11}


@both
@settings(deadline=None, max_examples=100)
@given(problems())
def test_a_product_is_the_product(module, problem):
    S, A, own, halo, _ = problem
    out = np.full_like(own, np.nan)
    module.product(A, own, halo, out=[out])
    assert_allclose(out, S @ np.concatenate([own, halo]), **tolerance(own))


@both
def test_a_block_of_one_row_may_be_a_view_of_a_wider_one(module):
    A = Block(np.array([0, 2]), padded(np.array([0, 2])), np.array([2.0, 3.0]))
    wide, out = np.array([[1.0, 100.0]]), np.empty((1, 1))
    module.product(A, wide[:, :1], np.array([[5.0], [7.0]]), out=[out])  # its rows are two numbers apart
    assert out == 2 * 1 + 3 * 7


@both
@settings(deadline=None, max_examples=50)
@given(problems(), st.booleans())
def test_a_chebyshev_step_is_its_recurrence(module, problem, in_place):
    S, A, own, halo, random = problem
    W = random.standard_normal(own.shape).astype(own.dtype)
    AV = S @ np.concatenate([own, halo])
    numbers = {"centre": 0.3, "scale": 0.7, "back": 0.2}
    expected = 0.7 * (AV - 0.3 * own) - 0.2 * W
    assert_allclose(rowwise.three_terms(AV.astype(own.dtype), own, W, **numbers), expected, **tolerance(own))
    out = W if in_place else np.full_like(own, np.nan)
    module.chebyshev_step(A, own, halo, own, W, **numbers, out=[out])
    assert_allclose(out, expected, **tolerance(own))


def halves(S, own, halo, old, inverse, rho, omega):
    """One iteration of ADMM on these rows, dense: X from Y = [own | halo], then Y, L, Λ, Γ, as if that were X."""
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


@both
@settings(deadline=None, max_examples=100)
@given(problems(widest=24), st.integers(1, 3), st.booleans(), st.sampled_from([1.0, 1.6]))
def test_the_updates_of_an_iteration_are_their_formulas(module, problem, runs, in_place, omega):
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
    found = module.update_X(A, own, halo, L0, Lam0, X0, inverse=inverse, rho=rho, out=[out])
    assert_allclose(out, X, **close)
    for one, expected in zip(found, sums_X, strict=True):
        assert_allclose(one, expected, rtol=close["rtol"], atol=close["atol"] * scale * len(own))

    Y0 = old[0].copy()
    out = [Y0, L0, Lam0, Gam0] if in_place else [np.empty_like(own) for _ in range(4)]
    small = {"inverse": inverse, "rho": rho, "omega": np.full(runs, omega)}
    found = module.update_rest(A, own, halo, own, L0, Lam0, Gam0, Y0, **small, out=out)
    for one, expected in zip(out, rest, strict=True):
        assert_allclose(one, expected, **close)
    for one, expected in zip(found, sums_Y, strict=True):
        assert_allclose(one, expected, rtol=close["rtol"], atol=close["atol"] * scale * len(own))
    assert_array_equal(module.gram(out[0], runs=runs), found[0])


@both
@settings(deadline=None, max_examples=50)
@given(problems(widest=24), st.integers(1, 3))
def test_quality_is_its_formula(module, problem, runs):
    S, A, own, halo, random = problem
    own, halo = np.tile(np.abs(own), runs), np.tile(halo, runs)
    G = random.standard_normal((runs, own.shape[1] // runs, own.shape[1] // runs))
    scale = random.uniform(0.5, 2, runs)
    inner, residual = module.quality(A, own, halo, own, G=G, scale=scale, out=[])
    AL = np.split(S @ np.concatenate([own, halo]).astype(float), runs, axis=1)
    for r, L in enumerate(np.split(own.astype(float), runs, axis=1)):
        distance = L - np.maximum(L - (L @ G[r] - AL[r]) / scale[r], 0)
        close = {"rel": 1e-3 if own.dtype == np.float32 else 1e-9, "abs": tolerance(own)["atol"] * len(own)}
        assert inner[r] == pytest.approx(np.sum(L * AL[r]), **close)
        assert residual[r] == pytest.approx(np.sum(distance**2), **close)


@both
@settings(deadline=None, max_examples=50)
@given(problems(widest=4))
def test_the_weight_inside_is_its_sum(module, problem):
    S, A, own, _, random = problem
    labels = random.integers(-1, 3, (S.shape[1], own.shape[1]))
    B = np.concatenate([random.uniform(0.5, 2, (S.shape[1], 2)), labels], axis=1)
    rows = B[: len(own)]
    W = S.toarray() * rows[:, :1] * B[:, 0]
    inside = [W[(one[: len(own), None] == one) & (one >= 0)].sum() for one in labels.T]
    found = module.weight_inside(A, rows, B[len(own) :].copy(), rows, out=[])
    assert_allclose(found, inside, rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=100)
@given(problems(widest=40), st.booleans())
def test_plain_and_fused_are_the_same_kernels(problem, relaxed):
    """The same calls, with unequal widths; the sums are compared relative to the largest."""
    _, A, own, halo, random = problem
    widths = _widths(random, own.shape[1])
    R, K = len(widths), max(widths)
    rows = [random.standard_normal(own.shape).astype(own.dtype) for _ in range(5)]
    inverse = kernels.ridge(kernels.gram(own, widths=widths), rho=np.ones(R), widths=widths)
    small = {"inverse": inverse, "rho": random.uniform(0.5, 2, R), "widths": widths}
    calls = {
        "product": (0, 1, {}),
        "chebyshev_step": (2, 1, {"centre": 0.3, "scale": 0.7, "back": 0.2}),
        "update_X": (3, 1, small),
        "update_rest": (5, 4, {**small, "omega": np.full(R, 1.6 if relaxed else 1.0)}),
        "quality": (1, 0, {"G": np.ones((R, K, K)), "scale": np.ones(R), "widths": widths}),
    }
    for name, (given_rows, results, scalars) in calls.items():
        found = []
        for module in BOTH:
            out = [np.full_like(own, np.nan) for _ in range(results)]
            sums = getattr(module, name)(A, own, halo, *rows[:given_rows], **scalars, out=out)
            found.append([*out, *(map(np.asarray, sums) if isinstance(sums, tuple) else ())])
        for one, other in zip(*found, strict=True):
            atol = (2e-4 if own.dtype == np.float32 else 1e-11) * (1 + np.abs(one).max(initial=0))
            assert_allclose(other, one, rtol=0, atol=atol, err_msg=name)
    grams = [module.gram(own, widths=widths) for module in BOTH]
    assert_allclose(*grams, rtol=0, atol=tolerance(own)["atol"] * len(own))


# Runs of unequal width side by side


def _widths(random, columns):
    """Cut the columns into runs, some of a single column."""
    cuts = np.unique(random.integers(1, columns, min(3, columns - 1))) if columns > 1 else []
    return np.diff([0, *cuts, columns]).tolist()


def _alone(array, run):
    return np.ascontiguousarray(array[:, run])


@both
@settings(deadline=None, max_examples=100)
@given(problems(), st.sampled_from([1.0, 1.6]))
def test_a_run_beside_others_has_the_bits_of_a_run_alone(module, problem, omega):
    _, A, own, halo, random = problem
    widths = _widths(random, own.shape[1])
    R = len(widths)
    old = [random.standard_normal(own.shape).astype(own.dtype) for _ in range(5)]
    rho, omegas = random.uniform(0.1, 2, R), np.where(np.arange(R) % 2, 1.0, omega)

    def iteration(own, halo, old, rho, omega, widths):
        G = module.gram(own, widths=widths)
        inverse = kernels.ridge(G, rho=rho, widths=widths)
        small = {"inverse": inverse, "rho": rho, "widths": widths}
        X, rest = np.empty_like(own), [np.empty_like(own) for _ in range(4)]
        first = module.update_X(A, own, halo, *old[:3], **small, out=[X])
        second = module.update_rest(A, own, halo, *old, **small, omega=omega, out=rest)
        AB = np.empty_like(own)
        module.product(A, own, halo, out=[AB])
        values = module.quality(A, own, halo, own, G=G, scale=1 + rho, widths=widths, out=[])
        labels = rowwise.row_labels(own, widths=widths)
        return [X, *rest, AB], [G, inverse, first[0], second[0]], [first[1], second[1], *values, labels]

    together = iteration(own, halo, old, rho, omegas, widths)
    for r, run in enumerate(spans(own.shape[1], R, widths)):
        K = widths[r]
        parts = [_alone(x, run) for x in old]
        alone = iteration(_alone(own, run), _alone(halo, run), parts, rho[[r]], omegas[[r]], None)
        for one, other in zip(together[0], alone[0], strict=True):
            assert_array_equal(one[:, run], other)
        for one, other in zip(together[1], alone[1], strict=True):
            assert_array_equal(one[r, :K, :K], other[0])
            assert not one[r, K:].any()
            assert not one[r, :, K:].any()
        for one, other in zip(together[2], alone[2], strict=True):
            assert_array_equal(one[..., r], other[..., 0])


@settings(deadline=None, max_examples=50)
@given(problems(widest=30))
def test_rowwise_kernels_take_runs_of_unequal_width(problem):
    _, _, own, _, random = problem
    own = np.abs(own)
    widths = _widths(random, own.shape[1])
    R = len(widths)
    rho, close = np.linspace(0.5, 2, R), {"rtol": 1e-3 if own.dtype == np.float32 else 1e-8, "atol": 1e-4}
    G = rowwise.run_grams(own, widths=widths)
    S, busy = np.tile(own, 3), np.arange(R) % 2 == 0
    fast = rowwise.fast_gradient(S, own, own, G=G, rho=rho, busy=busy, first=0, steps=3, widths=widths)
    swept = rowwise.column_sweep(own, own, own, G=G, rho=rho, widths=widths)
    norms = rowwise.pair_norms(own, swept, own, own, widths=widths)
    change = rowwise.last_change(fast, widths=widths)
    for r, run in enumerate(spans(own.shape[1], R, widths)):
        L, one = _alone(own, run), rho[[r]]
        g = rowwise.run_grams(L)
        steps = {"G": g, "rho": one, "busy": busy[[r]], "first": 0, "steps": 3}
        alone = rowwise.fast_gradient(np.tile(L, 3), L, L, **steps)
        for part, expected in zip(np.split(fast, 3, axis=1), np.split(alone, 3, axis=1), strict=True):
            assert_allclose(part[:, run], expected, **close)
        assert_allclose(change[:, [r]], rowwise.last_change(alone), **close)
        sweep = rowwise.column_sweep(L, L, L, G=g, rho=one)
        assert_allclose(swept[:, run], sweep, **close)
        assert_allclose(norms[:, [r]], rowwise.pair_norms(L, sweep, L, L), **close)


def test_widths_that_are_not_those_of_the_columns_are_refused():
    with pytest.raises(ValueError, match="2 runs of widths"):
        kernels.gram(np.ones((3, 4)), widths=[2, 3])


# The K × K algebra


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 70), st.integers(1, 3), st.integers(0, 2**31), st.floats(1e-3, 1e3))
def test_a_ridge_is_the_inverse(K, runs, seed, scale):
    X = np.random.default_rng(seed).standard_normal((runs, 2 * K, K)) * scale
    G, rho = X.swapaxes(1, 2) @ X, np.linspace(0.1, 2, runs)
    before = G.copy()
    found = kernels.ridge((G, None), rho=rho)
    assert_array_equal(found, kernels.ridge(G, rho=rho))
    assert_array_equal(G, before)
    for inverse, one, penalty in zip(found, G, rho, strict=True):
        assert_allclose(inverse @ (one + penalty * np.eye(K)), np.eye(K), atol=1e-7)
        assert_array_equal(inverse, inverse.T)


@pytest.mark.parametrize("widths", [None, [3, 3, 3]])
@pytest.mark.parametrize(
    "bad", [np.nan, np.inf, 2.0**100]
)  # the last is so large that the penalty is lost beside it
def test_a_run_without_a_ridge_is_nan_and_the_others_are_not(bad, widths):
    G = np.stack([np.full((3, 3), bad), np.ones((3, 3)), np.diag([1, 1, bad])])
    found = kernels.ridge((G,), rho=np.ones(3), widths=widths)
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()
    assert np.isfinite(found[2]).all() == np.isfinite(bad)


@both
@pytest.mark.parametrize("type", TYPES)
def test_a_run_that_overflowed_keeps_its_factor(module, type):
    A = Block(np.array([0, 1, 2]), padded(np.array([1, 0])), np.ones(2, dtype=type))
    own = np.ones((2, 5), dtype=type)  # a run of two columns and one of three
    L, rest = np.arange(10, dtype=type).reshape(2, 5), [np.ones((2, 5), dtype=type) for _ in range(3)]
    inverse = np.stack([np.full((3, 3), np.nan), np.eye(3)])
    small = {"inverse": inverse, "rho": np.ones(2), "widths": [2, 3]}
    gram, squares = module.update_X(A, own, own[:0], L, rest[0], rest[1], **small, out=[np.empty_like(own)])
    assert np.isnan(gram[0]).all()
    assert np.isnan(squares[:, 0]).all()
    assert np.isfinite(gram[1]).all()
    out = [rest[2], L, rest[0], rest[1]]
    gram, squares = module.update_rest(A, own, own[:0], own, L, *rest, **small, omega=np.ones(2), out=out)
    assert_array_equal(out[1][:, :2], [[0, 1], [5, 6]])
    assert np.isfinite(out[1]).all()
    assert np.isnan(gram[0]).all()
    assert np.isnan(squares[:, 0]).all()
    assert np.isfinite(gram[1]).all()
    assert np.isfinite(squares[:, 1]).all()


@both
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_not_finite_stays_so(module, type):
    A = Block(np.array([0, 1]), padded(np.array([0])), np.array([1], dtype=type))
    for bad in (np.nan, np.inf):
        own, out = np.full((1, 3), bad, dtype=type), np.zeros((1, 3), dtype=type)
        module.product(A, own, own[:0], out=[out])
        assert not np.isfinite(out).any()
        gram, squares = module.update_X(
            A, own, own[:0], own, own, own, inverse=np.eye(3)[None], rho=np.ones(1), out=[out]
        )
        assert not np.isfinite(out).any()
        assert not np.isfinite(gram).any()
        assert not np.isfinite(squares).any()


# Which kernels are used


def test_kernels_kept_on_disk_are_not_those_of_other_loops():
    folder = Path(simd.__file__).parent
    made_of = b"".join((folder / name).read_bytes() for name in ("simd.py", "entrywise.py"))
    found = hashlib.sha256(made_of).hexdigest()
    assert found == fused.MADE_OF, f"simd.py or entrywise.py was changed: put {found} into fused.MADE_OF"


def test_every_kernel_can_travel_to_a_worker():
    functions = [one for name in kernels.__all__ if callable(one := getattr(kernels, name))]
    assert kernels.quality in functions
    for one in functions:
        assert pickle.loads(pickle.dumps(one)) is one


def test_the_environment_chooses_the_kernels(monkeypatch):
    used = []
    for module in BOTH:
        monkeypatch.setattr(module, "gram", lambda X, runs, widths, module=module: used.append(module))
    for choice in ("plain", "fused", "auto"):
        monkeypatch.setattr(kernels, "_in_use", None)
        monkeypatch.setenv(kernels.CHOICE, choice)
        kernels.gram(np.ones((2, 2)))
    assert used == [plain, fused, fused]
    kernels.use("plain")
    assert kernels.chosen() == "plain"
    assert not kernels.must_compile()
    monkeypatch.setattr(kernels, "_in_use", None)
    monkeypatch.setenv(kernels.CHOICE, "fast")
    with pytest.raises(InputError, match="expected 'auto', 'fused' or 'plain'"):
        kernels.gram(np.ones((2, 2)))


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_without_numba_the_plain_kernels_work_after_one_warning():
    code = """
import sys, warnings
sys.modules["numba"] = None
import numpy as np
from snmf_dist.errors import SlowKernels
from snmf_dist.solve import kernels
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    sums = [kernels.gram(np.ones((2, 1)))[0, 0, 0] for _ in range(3)]
assert [one.category for one in seen] == [SlowKernels], seen
assert "ModuleNotFoundError" in str(seen[0].message) and "slower" in str(seen[0].message)
assert kernels.compile_all("f4") == 0 and kernels.cache_dir() is None
print(kernels.chosen(), sum(sums))
"""
    assert python(code) == ["plain", "6.0"]


@pytest.mark.parametrize("wrong", ["raise TypeError('no such type')", "return np.zeros(1), np.zeros(1)"])
def test_kernels_that_do_not_compile_or_are_wrong_are_not_used(wrong, monkeypatch):
    space = {"np": np}
    exec(f"def quality(*given, **scalars): {wrong}", space)
    monkeypatch.setattr(fused, "quality", space["quality"])
    monkeypatch.setattr(kernels, "_in_use", None)
    kernels._what_works.cache_clear()
    try:
        with pytest.warns(kernels.SlowKernels, match="TypeError: no such type|0.0 where 4 is right"):
            assert kernels.chosen() == "plain"
    finally:
        kernels._what_works.cache_clear()


def test_plain_and_fused_have_the_same_signatures():
    import inspect

    for name in SWEEPS:
        one, *others = (inspect.signature(getattr(module, name)) for module in (kernels, plain, fused))
        assert others == [one, one], name
