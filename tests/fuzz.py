"""Strange inputs and settings, one after the other: ``python -m tests.fuzz FIRST COUNT`` tells how each ended.

A line goes out before a case begins and after it ended, so that who reads them knows which one ended the process.
"""

import json
import os
import random
import resource
import shutil
import sys
import tempfile
import traceback
import warnings
import zipfile

import numpy as np
import zarr
from scipy import io, sparse

import snmf_dist
from snmf_dist import SnmfError
from tests.helpers import planted_graph

MEMORY = 12 << 30  # bytes of address space: what claims to be endless fails, and does not fill the machine
VALUES = (0.0, 1e-320, 1e-200, 1e-45, 1e-30, 1.0, 3.0, 1e30, 1e38, 1e150, 1e300, np.inf, np.nan, -1.0)


def weights(dice, size):
    """Numbers of one scale, or of all, and now and then some that no graph may have."""
    generator = np.random.default_rng(dice.randrange(2**32))
    kind = dice.random()
    if kind < 0.5:
        return generator.uniform(0.5, 1.5, size)
    if kind < 0.75:
        return generator.uniform(0.5, 1.5, size) * dice.choice(VALUES)
    if kind < 0.9:
        return 10.0 ** generator.uniform(-300, 300, size)
    return generator.choice(np.array(VALUES), size)


def matrix(dice):
    """A matrix, most often square, symmetric and nonnegative."""
    if dice.random() < 0.6:
        W = planted_graph(dice.choice([6, 12, 30]), 3, seed=dice.randrange(100), between=0.1)[0].toarray()
        with np.errstate(all="ignore"):
            return (W * dice.choice(VALUES[1:11] + (1.0,) * 10)).astype(dice.choice(["<f8", "<f8", "<f4", ">f8"]))
    n = dice.choice([1, 2, 3, 5, 12, 30])
    m = n if dice.random() < 0.95 else n + 1
    generator = np.random.default_rng(dice.randrange(2**32))
    with np.errstate(all="ignore"):
        W = (generator.random((n, m)) < dice.choice([0.0, 0.1, 0.4, 1.0])) * weights(dice, (n, m))
        if n == m and dice.random() < 0.9:
            W = np.triu(W) + np.triu(W, 1).T
        dtype = dice.choice(["<f8"] * 4 + ["<f4", ">f8", ">f4", "<i4", ">i8", "?", "<f2", "<u1", "<c16", "<g"])
        return W.astype(dtype)


def forge(dice, A):
    """Spoil the row or column numbers of a CSR matrix, now and then."""
    if A.nnz and dice.random() < 0.1:
        where = A.indices if dice.random() < 0.7 else A.indptr
        where[dice.randrange(len(where))] = dice.choice([-1, -(2**31), 2**31 - 1, 10**6, A.shape[1]])
    return A


def csr(W):
    """A CSR matrix; its numbers keep their byte order, though SciPy itself makes none like that."""
    A = sparse.csr_matrix(W.astype(W.dtype.newbyteorder("=")))
    A.data = A.data.astype(W.dtype)
    return A


def coo(dice, A):
    """The entries of a CSR matrix, now and then in a matrix of endless shape."""
    rows = np.repeat(np.arange(A.shape[0]), np.maximum(np.diff(A.indptr), 0))[: A.nnz]
    size = 10**18 if dice.random() < 0.2 else max(A.shape)
    keep = min(len(rows), len(A.indices), len(A.data))
    columns = np.clip(A.indices[:keep], 0, size - 1)
    data = A.data[:keep].astype(A.dtype.newbyteorder("="))
    return sparse.coo_array((data, (rows[:keep], columns)), shape=(size, size))


def source(dice, folder):
    """Something to import: an array, a sparse matrix, or a file."""
    usual = ["dense", "csr", "csc", "coo", "npz", "edges npz", "mtx", "csv", "anndata"]
    kind = dice.choice(usual * 3 + ["broken", "bomb"])
    W = matrix(dice)
    if kind == "dense" or W.dtype.char in "eg":
        return W
    if kind in ("csr", "csc", "coo", "npz"):
        A = csr(W) if kind in ("csc", "coo") else forge(dice, csr(W))
        if kind == "npz":
            sparse.save_npz(f"{folder}/a.npz", A, compressed=dice.random() < 0.5)
            return f"{folder}/a.npz"
        return A.T if kind == "csc" else coo(dice, A) if kind == "coo" else A
    if kind == "anndata":
        return anndata(dice, folder, W)
    where = np.nonzero(W)
    src, dst = (ends.astype(dice.choice(["i8", "u8", "i4", ">i8"])) for ends in where)
    if len(src) and dice.random() < 0.1:
        src[0] = dice.choice([10**18, 2**31, 2**62, 5000]) if src.dtype.itemsize == 8 else 2**31 - 1
    if kind == "edges npz":
        extra = {"n": dice.choice([0, 3, 10**18, -1, 1.5])} if dice.random() < 0.1 else {}
        np.savez(f"{folder}/a.npz", src=src, dst=dst, weight=W[where], **extra)
        return f"{folder}/a.npz"
    if kind == "mtx":
        io.mmwrite(f"{folder}/a.mtx", sparse.coo_matrix(W.astype(complex if W.dtype.kind == "c" else float)))
        return mangle(dice, f"{folder}/a.mtx")
    if kind == "csv":
        lines = [f"{i},{j},{w}" for i, j, w in zip(src.tolist(), dst.tolist(), W[where].tolist(), strict=True)]
        with open(f"{folder}/a.csv", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        return mangle(dice, f"{folder}/a.csv")
    if kind == "bomb":
        return bomb(dice, folder)
    path = f"{folder}/a.{dice.choice(['npz', 'mtx', 'csv', 'parquet', 'txt', 'csv.gz', 'mtx.gz'])}"
    with open(path, "wb") as file:
        file.write(dice.randbytes(dice.choice([0, 1, 50, 5000])))
    return path


def mangle(dice, path):
    """Change a few bytes of a file, most often of its head, or replace a number in it."""
    with open(path, "rb") as file:
        text = file.read()
    if dice.random() < 0.2 and text:
        at = dice.randrange(min(len(text), 100))
        text = text[:at] + dice.choice([b"", b"\xff", b"9" * 18, b"-", b"\n", b"%", b"nan"]) + text[at + 1 :]
    with open(path, "wb") as file:
        file.write(text)
    return path


def bomb(dice, folder):
    """An archive whose arrays claim, or have, more than the file holds."""
    shape = dice.choice(["(1000000000000,)", "(10,)", "(-1,)", "()"])
    header = f"{{'descr': '{dice.choice(['<i8', '|O', '<f8'])}', 'fortran_order': False, 'shape': {shape}, }}"
    head = b"\x93NUMPY\x01\x00" + len(header.ljust(117) + "\n").to_bytes(2, "little")
    names = dice.choice([("src", "dst"), ("format", "data", "indices", "indptr", "shape"), ("X",)])
    with zipfile.ZipFile(f"{folder}/a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(f"{name}.npy", head + header.ljust(117).encode() + b"\n" + b"\0" * 80)
    return f"{folder}/a.npz"


def anndata(dice, folder, W):
    """The obsp of an AnnData store, its arrays not always what they should be."""
    A = forge(dice, csr(W if W.dtype.kind in "fiu" else W.astype(float)))
    group = zarr.open_group(f"{folder}/a.zarr", mode="w", zarr_format=dice.choice([2, 3]))
    obsp = group.create_group("obsp/connectivities")
    for name in ("data", "indices", "indptr"):
        values = getattr(A, name).astype(getattr(A, name).dtype.newbyteorder("="))
        if dice.random() < 0.97:
            obsp.create_array(name, data=values[:-1] if dice.random() < 0.05 and len(values) > 1 else values)
    shape = dice.choice([list(A.shape)] * 20 + [[10**18, 10**18], None, ["a", 1], [3]])
    obsp.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": shape})
    return f"{folder}/a.zarr"


def points(dice, folder):
    """Points, as an array or in a file."""
    X = matrix(dice) if dice.random() < 0.5 else np.random.default_rng(0).standard_normal((30, 3))
    kind = dice.choice(["array", "csr", "npy", "zarr"])
    if kind == "csr":
        return forge(dice, csr(X)) if X.dtype.char not in "eg" else X
    if kind == "npy":
        np.save(f"{folder}/x.npy", X)
        return mangle(dice, f"{folder}/x.npy")
    if kind == "zarr" and X.dtype.kind in "fiu" and X.dtype.isnative and X.dtype.char != "g":
        zarr.create_array(f"{folder}/x.zarr", data=X)
        return f"{folder}/x.zarr"
    return X


def settings(dice):
    """Settings of `fit`, most of them sensible."""
    found = {
        "k": dice.choice([1, 2, 2, 3, 3, 5, 31, 0, -1, 2.5]),
        "solver": dice.choice(["admm", "admm", "apg", "hals", "none"]),
        "init": dice.choice(
            ["kmeans", "spectral", "random", "random", "x", np.full((5, 2), 1e30), np.ones((2, 2))]
        ),
        "rho": dice.choice(["auto", "auto", 0.1, 1.0, 1e-320, 1e-100, 1e-20, 1e20, 1e300, 0, np.inf, True]),
        "stop": dice.choice(["auto", "kkt", "paper"]),
        "tol": dice.choice([None, None, 1e-3, 1e-300, 0, np.nan, 1e300]),
        "max_iter": dice.choice([1, 5, 20, 40, 40, 0]),
        "n_init": dice.choice([1, 1, 1, 2, 3]),
        "seed": dice.choice([0, 1, 2**63 - 1, 2**63, -1]),
        "block_rows": dice.choice([None, None, 1, 3, 10**9]),
        "memory_limit": dice.choice([None, None, None, None, "1GiB", "1kB", 0, "many"]),
        "evaluate_every": dice.choice([1, 10, 10, 10**6]),
    }
    chosen = {name: value for name, value in found.items() if dice.random() < 0.15}
    return {"k": dice.choice([1, 2, 3]), "max_iter": 30} | chosen


def options(dice):
    """Settings of `import_graph`."""
    found = {
        "normalize": dice.choice(["ncut", None]),
        "dtype": dice.choice(["float32", "float64"]),
        "symmetrize": dice.choice([None, "max", "mean"]),
        "self_loops": dice.choice(["keep", "drop"]),
        "block_rows": dice.choice([None, 1, 4]),
        "n": dice.choice([None, 100, 10**18]) if dice.random() < 0.1 else None,
    }
    return {name: value for name, value in found.items() if dice.random() < 0.5}


def spoil(dice, path):
    """Flip a bit of some file of a store."""
    names = sorted(os.path.join(place, name) for place, _, some in os.walk(path) for name in some)
    name = dice.choice(names)
    with open(name, "rb") as file:
        text = bytearray(file.read())
    if text:
        text[dice.randrange(len(text))] ^= 1 << dice.randrange(8)
    with open(name, "wb") as file:
        file.write(text)


def run(number, folder):
    """Run a case; a word for how it ended."""
    dice = random.Random(number)
    out = f"{folder}/g.zarr"
    try:
        if dice.random() < 0.15:
            snmf_dist.build_graph(points(dice, folder), out, metric=dice.choice(["euclidean", "cosine"]))
        else:
            snmf_dist.import_graph(source(dice, folder), out, **options(dice))
    except SnmfError as error:
        return f"import refused: {type(error).__name__}"
    if dice.random() < 0.1:
        spoil(dice, out)
    try:
        solution = snmf_dist.fit(out, **settings(dice), listeners=[])
    except SnmfError as error:
        return f"fit refused: {type(error).__name__}"
    L = np.asarray(solution.membership)
    assert np.isfinite(L).all(), "L is not finite"
    assert (L >= 0).all(), "L has an entry below 0"
    assert solution.labels.min() >= -1, "a label is below -1"
    assert solution.labels.max() < L.shape[1], "a label is too large"
    if solution.status.converged:
        assert np.isfinite(solution.captured), "called converged, but c is not finite"
    return solution.status.name


def main(first, count):
    """Run some cases, and print how each ended."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for number in range(first, first + count):
        print(json.dumps({"begin": number}), flush=True)
        folder = tempfile.mkdtemp(prefix="fuzz-")
        try:
            end = {"end": number, "how": run(number, folder)}
        except BaseException as error:
            trace = traceback.format_exc().splitlines()[-14:]
            end = {"end": number, "how": "unexpected", "error": f"{type(error).__name__}: {error}", "trace": trace}
        shutil.rmtree(folder, ignore_errors=True)
        print(json.dumps(end), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
