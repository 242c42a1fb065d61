"""Points in the files of other programs, each written by that program, and labels for new ones."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from pyarrow import feather, parquet
from scipy import sparse

import snmf_dist
from snmf_dist import errors
from snmf_dist.graph.build.points import open_points
from snmf_dist.graph.build.spooling import spool

RANDOM = np.random.default_rng(0)
X = (RANDOM.standard_normal((90, 3)) + np.repeat(8 * np.eye(3), 30, axis=0)).astype(np.float32)
NAMES = [f"cell {i} ü" for i in range(90)]


def read(path, folder, **options):
    """All rows, as a task would read them, in two ranges."""
    points = spool(open_points(path, **options), str(folder), shared=True)
    parts = [points.read(0, 40), points.read(40, 90)]
    return np.vstack([part.toarray() if sparse.issparse(part) else part for part in parts])


def write_vectors(path, X):
    """As the tools of the billion-scale benchmarks write them: n, d, then the vectors."""
    with open(path, "wb") as file:
        np.array(X.shape, dtype="<u4").tofile(file)
        X.tofile(file)


@pytest.mark.parametrize(("suffix", "dtype"), [("fbin", "<f4"), ("u8bin", "u1"), ("i8bin", "i1")])
def test_raw_vectors(tmp_path, suffix, dtype):
    vectors = np.round(X).clip(0, 100).astype(dtype)
    write_vectors(tmp_path / f"x.{suffix}", vectors)
    assert_array_equal(read(tmp_path / f"x.{suffix}", tmp_path), vectors)
    with open(tmp_path / f"x.{suffix}", "ab") as file:
        file.write(b"more")
    with pytest.raises(errors.InputError, match="its header says 90 vectors of 3 numbers"):
        read(tmp_path / f"x.{suffix}", tmp_path)


def frame():
    return pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "z": X[:, 2]})


@pytest.mark.parametrize("kind", ["feather", "stream", "lists", "lists of one length", "parquet lists"])
def test_arrow_and_lists_in_columns(tmp_path, kind):
    path, lists = tmp_path / "x.arrow", pa.array(list(X), type=pa.list_(pa.float32()))
    if "one length" in kind:
        lists = pa.FixedSizeListArray.from_arrays(X.ravel(), 3)
    table = pa.table({"vector": lists}) if "lists" in kind else pa.Table.from_pandas(frame())
    if kind == "feather":
        frame().to_feather(path)
    elif kind == "parquet lists":
        path = tmp_path / "x.parquet"
        parquet.write_table(table, path, row_group_size=25)
    elif kind == "stream":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=25)
    else:
        feather.write_feather(table, path, chunksize=25, compression="uncompressed")
    assert_array_equal(read(path, tmp_path), X)


def test_polars_writes_arrow(tmp_path):
    polars = pytest.importorskip("polars")
    polars.DataFrame({"id": NAMES, "x": X[:, 0], "y": X[:, 1], "z": X[:, 2]}).write_ipc(tmp_path / "x.arrow")
    graph = snmf_dist.build_graph(tmp_path / "x.arrow", tmp_path / "g.zarr", ids="id")
    assert list(graph.ids) == NAMES


def test_lists_of_other_lengths_are_refused(tmp_path):
    table = pa.table({"vector": [[1.0, 2.0], [3.0, 4.0], [5.0]] * 10})
    parquet.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(errors.InputError, match=r"'vector' has lists of other lengths than 2.*row 2"):
        read(tmp_path / "x.parquet", tmp_path)


@pytest.fixture(params=["h5ad", "zarr"])
def cells(tmp_path, request):
    """AnnData with dense coordinates and sparse counts, in both of its formats."""
    anndata = pytest.importorskip("anndata")
    pytest.importorskip("h5py")
    adata = anndata.AnnData(
        X=sparse.csr_matrix(np.round(X).clip(0)),
        obs=pd.DataFrame(index=NAMES),
        obsm={"X_pca": X, "X_umap": X[:, :2]},
        layers={"by_column": sparse.csc_matrix(np.round(X).clip(0))},
    )
    path = tmp_path / f"cells.{request.param}"
    if request.param == "h5ad":
        adata.write_h5ad(path, compression="gzip")
    else:
        adata.write_zarr(path)
    return path


@pytest.mark.filterwarnings("ignore")  # of the writers of AnnData
def test_anndata_gives_coordinates_counts_and_names(cells, tmp_path):
    assert_array_equal(read(cells, tmp_path, key="X_pca"), X)
    assert_array_equal(read(cells, tmp_path, key="obsm/X_umap"), X[:, :2])
    assert_array_equal(read(cells, tmp_path / "", key="X"), np.round(X).clip(0))
    with pytest.raises(errors.InputError, match=r"obsm has \['X_pca', 'X_umap'\]: pass key="):
        read(cells, tmp_path)
    solution = snmf_dist.fit(cells, 3, graph_settings={"key": "X_pca"})
    assert list(solution.ids) == NAMES
    assert len(set(solution.labels[:30])) == 1
    # the graph knows which matrix it was built from, so that new cells find their place
    assert_array_equal(solution.predict(X[:5]), solution.labels[:5])
    assert_array_equal(solution.predict(cells), solution.labels)


@pytest.mark.filterwarnings("ignore")  # of the writers of AnnData
def test_anndata_in_memory_is_read_too(cells, tmp_path):
    anndata = pytest.importorskip("anndata")
    adata = anndata.read_h5ad(cells) if cells.suffix == ".h5ad" else anndata.read_zarr(cells)
    for key, expected in (("X_pca", X), ("obsm/X_umap", X[:, :2]), ("X", np.round(X).clip(0))):
        assert_array_equal(read(adata, tmp_path, key=key), expected)
    assert_array_equal(read(adata, tmp_path, key="layers/by_column"), np.round(X).clip(0))
    with pytest.raises(errors.InputError, match=r"obsm has \['X_pca', 'X_umap'\]: pass key="):
        snmf_dist.build_graph(adata, tmp_path / "g.zarr")
    solution = snmf_dist.fit(snmf_dist.build_graph(adata, tmp_path / "g.zarr", key="X_pca"), 3)
    assert list(solution.ids) == NAMES
    assert_array_equal(solution.predict(adata[:7].copy(), points=adata), solution.labels[:7])


@pytest.mark.filterwarnings("ignore")  # of the writers of AnnData
def test_counts_by_column_are_read(cells, tmp_path):
    assert_array_equal(read(cells, tmp_path, key="layers/by_column"), np.round(X).clip(0))


def test_other_hdf5_is_read_by_the_name_of_its_dataset(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("train", data=X, chunks=(20, 3), compression="gzip")
        file["notes"] = "text"
    assert_array_equal(read(tmp_path / "x.h5", tmp_path), X)
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file["more/test"] = X[:5]
    with pytest.raises(errors.InputError, match=r"it has \['train', 'more/test'\]: pass key="):
        read(tmp_path / "x.h5", tmp_path)
    graph = snmf_dist.build_graph(tmp_path / "x.h5", tmp_path / "g.zarr", key="train")
    labels = snmf_dist.fit(graph, 3).predict(X[:7])
    assert len(labels) == 7


def test_hdf5_whose_points_lie_in_another_file_is_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    X.tofile(tmp_path / "x.raw")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        external = [(str(tmp_path / "x.raw"), 0, X.nbytes)]
        file.create_dataset("train", X.shape, X.dtype, external=external)
    with pytest.raises(errors.InputError, match="train lies in another file"):
        read(tmp_path / "x.h5", tmp_path)


def test_points_of_a_table_find_their_file_again(tmp_path):
    frame().assign(id=NAMES).to_parquet(tmp_path / "x.parquet")
    graph = snmf_dist.build_graph(tmp_path / "x.parquet", tmp_path / "g.zarr", ids="id")
    solution = snmf_dist.fit(graph, 3)
    assert_array_equal(solution.predict(X[:5]), solution.labels[:5])
