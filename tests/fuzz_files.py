"""Files of other programs with bytes changed: ``python -m tests.fuzz_files FIRST COUNT`` names each bad case.

Each file is read by the functions that imports and builds begin with; it ends with an error of ours, or is read.
"""

import os
import random
import sys
import tempfile
import traceback
import warnings
from collections import Counter

import anndata
import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from snmf_dist.errors import SnmfError
from snmf_dist.graph.build.points import open_points
from snmf_dist.graph.build.rowids import open_row_ids
from snmf_dist.graph.build.spooling import spool
from snmf_dist.graph.ingest.edges import IdRules
from snmf_dist.graph.ingest.sources import open_source

GRAPHS = ("g.graphml", "g.graph", "g.arrow", "cells.h5ad")
POINTS = ("x.arrow", "x.fbin", "cells.h5ad")


def write_files(folder):
    """A good file of each kind."""
    W = sparse.random(20, 20, 0.2, format="csr", random_state=0)
    W = sparse.csr_matrix(W + W.T)
    X = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    coo = W.tocoo()
    nodes = "".join(f'<node id="n{i}"><data key="name">node {i}</data></node>' for i in range(20))
    ends = zip(coo.row, coo.col, coo.data, strict=True)
    edges = "".join(f'<edge source="n{i}" target="n{j}"><data key="w">{w}</data></edge>' for i, j, w in ends)
    keys = '<key id="w" for="edge" attr.name="weight"/><key id="name" for="node" attr.name="name"/>'
    with open(f"{folder}/g.graphml", "w", encoding="utf-8") as file:
        file.write(f"<graphml>{keys}<graph>{nodes}{edges}</graph></graphml>")
    with open(f"{folder}/g.graph", "w", encoding="utf-8") as file:
        rows = [" ".join(str(j + 1) for j in W.indices[W.indptr[i] : W.indptr[i + 1]]) for i in range(20)]
        file.write("\n".join([f"20 {W.nnz // 2}", *rows]) + "\n")
    names = [f"node {i}" for i in coo.row], [f"node {i}" for i in coo.col]
    pd.DataFrame({"source": names[0], "target": names[1], "weight": coo.data}).to_feather(f"{folder}/g.arrow")
    vectors = pa.table({"id": [f"p{i}" for i in range(20)], "x": pa.array(list(X), pa.list_(pa.float32()))})
    with pa.OSFile(f"{folder}/x.arrow", "wb") as file, pa.ipc.new_file(file, vectors.schema) as writer:
        writer.write_table(vectors)
    with open(f"{folder}/x.fbin", "wb") as file:
        np.array(X.shape, dtype="<u4").tofile(file)
        X.tofile(file)
    obs = pd.DataFrame(index=[f"cell {i}" for i in range(20)])
    cells = anndata.AnnData(X=sparse.csr_matrix(X), obs=obs, obsm={"X_pca": X}, obsp={"near": W})
    cells.write_h5ad(f"{folder}/cells.h5ad", compression=random.Random(0).choice([None, "gzip"]))


def changed(dice, content):
    """Some bytes changed, put in, or cut off."""
    content = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 8])):
        at = dice.randrange(len(content))
        how = dice.random()
        if how < 0.6:
            content[at] = dice.randrange(256)
        elif how < 0.8:
            content[at : at + 8] = dice.choice([b"\xff" * 8, b"\0" * 8, b"99999999", b"-1 ", dice.randbytes(8)])
        elif how < 0.9:
            del content[at : at + dice.choice([1, 8, 500])]
        else:
            del content[at:]
        if not content:
            break
    return bytes(content)


def read(path, folder):
    """Everything that a file has, as an import and as a build see it."""
    if path.endswith(GRAPHS):
        with tempfile.TemporaryDirectory() as inner:
            rules = IdRules("auto", None, 0, inner, 10**8)
            found = open_source(path, rules=rules)
            sum(len(edges.rows) for edges in found.batches())
            if found.ids is not None:
                list(found.ids)
    if path.endswith(POINTS):
        ids, columns = open_row_ids(path, "id" if path.endswith("arrow") else None, None, None)
        points = spool(open_points(path, columns=columns), folder, shared=True)
        points.read(0, points.shape[0])
        if ids is not None:
            list(ids)


def main(first, count):
    """Read files with bytes changed, and say how many were read or refused."""
    warnings.simplefilter("ignore")
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as good, tempfile.TemporaryDirectory() as folder:
        write_files(good)
        for number in range(first, first + count):
            dice = random.Random(number)
            name = dice.choice(sorted({*GRAPHS, *POINTS}))
            with open(f"{good}/{name}", "rb") as file:
                content = changed(dice, file.read())
            with open(f"{folder}/{name}", "wb") as file:
                file.write(content)
            print("begin", number, name, flush=True)
            try:
                read(f"{folder}/{name}", folder)
                ends["read"] += 1
            except SnmfError:
                ends["refused"] += 1
            except BaseException:
                ends["unexpected"] += 1
                print("UNEXPECTED", number, name, traceback.format_exc(), flush=True)
            for extra in os.listdir(folder):
                if os.path.isfile(f"{folder}/{extra}"):
                    os.remove(f"{folder}/{extra}")
    print("done", dict(ends), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
