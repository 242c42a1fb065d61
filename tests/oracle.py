"""The paper, dense and literal: what every blocked, threaded or distributed run must agree with."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.spatial.distance import cdist


class DenseState(NamedTuple):
    X: np.ndarray
    Y: np.ndarray
    L: np.ndarray
    Lam: np.ndarray
    Gam: np.ndarray


def admm(A, L, *, rho, tol=0.0, max_iter):
    """Algorithm 2 from Y = L, duals of zero; returns the state, the iterations and the last change."""
    n, K = L.shape
    X, Y = L, L
    Lam, Gam = np.zeros((n, K)), np.zeros((n, K))
    norm = np.linalg.norm
    for iteration in range(1, max_iter + 1):  # noqa: B007
        X0, Y0, L0 = X, Y, L
        C = cholesky(Y.T @ Y + rho * np.eye(K), lower=True)
        J = solve_triangular(C, (A @ Y + rho * L + Lam).T, lower=True)
        X = solve_triangular(C.T, J, lower=False).T
        D = cholesky(X.T @ X + rho * np.eye(K), lower=True)
        H = solve_triangular(D, (A @ X + rho * L + Gam).T, lower=True)
        Y = solve_triangular(D.T, H, lower=False).T
        L = 0.5 * np.maximum(X + Y - (Lam + Gam) / rho, 0)
        Lam = Lam + rho * (L - X)
        Gam = Gam + rho * (L - Y)
        change = norm(X - X0) / norm(X0) + norm(Y - Y0) / norm(Y0) + norm(L - L0) / norm(L0)
        if change <= tol:
            break
    return DenseState(X, Y, L, Lam, Gam), iteration, change


def apg(A, L, *, rho, tol, max_iter, look_every=1, inner_limit=500):
    """Algorithm 1 from Z = L; returns L and Z. The inner norms are looked at every `look_every` iterations."""
    norm = np.linalg.norm

    def inner(L, Z):
        G = Z.T @ Z + rho * np.eye(Z.shape[1])
        alpha = 1 / norm(G, 2)
        Phi = L
        for i in range(inner_limit):
            before = L
            L = np.maximum(Phi @ (np.eye(len(G)) - alpha * G) + alpha * (A @ Z + rho * Z), 0)
            Phi = L + i / (i + 3) * (L - before)
            if (i + 1) % look_every == 0 and norm(L - before) <= tol * norm(before):
                break
        return L

    Z = L
    for _ in range(max_iter):
        L = inner(L, Z)
        Z = inner(Z, L)
    return L, Z


def penalised(A, L, Z, *, rho):
    """The objective of APG and HALS."""
    return np.linalg.norm(A - L @ Z.T) ** 2 + rho * np.linalg.norm(L - Z) ** 2


def modularity(W, labels):
    """Newman's Q, from its definition as a sum over pairs of rows; −1 is no cluster."""
    d = W.sum(axis=1)
    together = (labels[:, None] == labels[None, :]) & (labels[:, None] >= 0)
    return ((W - np.outer(d, d) / d.sum()) * together).sum() / d.sum()


def objective(A, L):
    return np.linalg.norm(A - L @ L.T) ** 2


def kkt(A, L):
    """‖L − [L − ∇/s]₊‖ / ‖L‖ with ∇ = (LLᵀ − A)L and s the largest eigenvalue of LᵀL."""
    step = (L @ L.T - A) @ L / np.linalg.eigvalsh(L.T @ L)[-1]
    return np.linalg.norm(L - np.maximum(L - step, 0)) / np.linalg.norm(L)


def similarity_graph(points, *, q=None, p=7):
    """The paper's W and A = D^-1/2 W D^-1/2, from all distances.

    The paper leaves 0/0 open: a scale of 0 gives way to the nearest distance above 0 in the row's list, or
    else to the scale of the other end; duplicates weigh 1.
    """
    n = len(points)
    q = int(np.log2(n)) + 1 if q is None else q
    d = cdist(points, points)
    near = np.argsort(d + np.diag(np.full(n, np.inf)), axis=1, kind="stable")
    listed = np.take_along_axis(d, near[:, : max(p, q)], axis=1)
    nearest = np.where(listed > 0, listed, np.inf).min(axis=1)
    sigma = np.where(listed[:, p - 1] > 0, listed[:, p - 1], np.where(np.isfinite(nearest), nearest, 0))
    one = np.where(sigma[:, None] > 0, sigma[:, None], sigma[None, :])
    chosen = np.zeros((n, n), dtype=bool)
    chosen[np.arange(n)[:, None], near[:, :q]] = True
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(d == 0, 1, np.exp(-(d**2) / (one * one.T)))
    W = np.where(chosen | chosen.T, weight, 0)
    return W, normalized(W)


def normalized(W):
    root = np.sqrt(W.sum(axis=1))
    scale = np.divide(1, root, out=np.zeros_like(root), where=root > 0)
    return W * np.outer(scale, scale)
