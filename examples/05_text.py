"""Cluster documents, and say what each cluster is about: its words, and the documents that stand for it.

Run it as ``python examples/05_text.py [folder]``; it writes text.png there if matplotlib is installed. The
documents
are those of Reuters-21578 in ``$SNMF_DATA/reuters21578_top20.npz``; without that file a small stand-in is drawn.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer

import snmf_dist

WORDS = 6
COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#bbbbbb"]
TOPICS = {
    "trade": "tariff import export quota deficit surplus japan agreement",
    "crude": "oil barrel opec crude refinery pipeline output saudi",
    "money": "dollar yen bundesbank currency intervention rate exchange dealer",
    "grain": "wheat corn crop harvest tonne soviet export farmer",
    "sugar": "sugar cane beet raw white refinery tonne tender",
    "ship": "port vessel strike cargo tanker gulf crew union",
}


class Documents(NamedTuple):
    """Documents as rows of weighted terms.

    Attributes
    ----------
    X : csr_matrix, shape (n, d)
        Tf-idf weights, rows of unit length.
    terms : ndarray of str, shape (d,)
        The terms.
    names : list of str
        A name for each document.
    topics : ndarray of str, shape (n,)
        What a person said that each is about.
    """

    X: sparse.csr_matrix
    terms: np.ndarray
    names: list[str]
    topics: np.ndarray


def load_documents(n: int | None = None) -> Documents:
    """Reuters if it is there, else a stand-in; `n` takes a random part."""
    path = Path(os.environ.get("SNMF_DATA", "data")) / "reuters21578_top20.npz"
    if not path.exists():
        print(f"{path} is not there: {n or 1200} made-up documents stand in; set SNMF_DATA to its folder")
        return draw_documents(n or 1200)
    with np.load(path) as file:
        names = [f"NEWID {number}" for number in file["newid"].tolist()]
        documents = Documents(sparse.load_npz(path), file["terms"], names, file["class_names"][file["y"]])
    if n is None or n >= len(names):
        return documents
    some = np.sort(np.random.default_rng(0).choice(len(names), n, replace=False))
    X, terms, names, topics = documents
    return Documents(X[some], terms, [names[i] for i in some], topics[some])


def draw_documents(n: int, seed: int = 0) -> Documents:
    """Documents of about 30 words, half of them of their topic, the others of all topics and of none."""
    random = np.random.default_rng(seed)
    common = [f"word{i:02d}" for i in range(60)]
    own = {topic: words.split() for topic, words in TOPICS.items()}
    terms = np.array(sorted({*common, *(word for words in own.values() for word in words)}))
    column = {term: j for j, term in enumerate(terms)}
    topics = random.choice(list(own), n)
    counts = sparse.lil_matrix((n, len(terms)))
    for i, topic in enumerate(topics):
        length = max(random.poisson(30), 8)
        for word in [*random.choice(own[topic], length // 2), *random.choice(common, length - length // 2)]:
            counts[i, column[word]] += 1
    X = TfidfTransformer(sublinear_tf=True).fit_transform(counts.tocsr())
    return Documents(sparse.csr_matrix(X), terms, [f"document {i}" for i in range(n)], topics)


def cluster_words(documents: Documents, solution: snmf_dist.Solution) -> list[list[str]]:
    """The words of each cluster: those whose mean weight in it exceeds their mean weight by most."""
    L = np.asarray(solution.membership.compute())
    share = L / np.maximum(L.sum(axis=0), 1e-12)  # a document counts as far as it belongs
    lift = np.asarray(share.T @ documents.X) - np.asarray(documents.X.mean(axis=0))
    return [documents.terms[row[:WORDS]].tolist() for row in np.argsort(-lift, axis=1)]


def draw(documents: Documents, solution: snmf_dist.Solution, path: Path) -> None:
    """A bar for each cluster, in parts by what people said, with its words beside it."""
    from matplotlib.figure import Figure

    words, order = cluster_words(documents, solution), np.argsort(solution.sizes)
    names, counts = np.unique(documents.topics, return_counts=True)
    shown = names[np.argsort(-counts)][: len(COLORS) - 1]
    figure = Figure(figsize=(9.5, 0.9 + 0.27 * len(order)), layout="constrained", facecolor="white")
    axes = figure.subplots()
    left = np.zeros(len(order))
    for name, color in zip([*shown, "other topics"], COLORS, strict=False):
        of = ~np.isin(documents.topics, shown) if name == "other topics" else documents.topics == name
        share = np.array([np.mean(of[solution.labels == k]) if solution.sizes[k] else 0 for k in order])
        axes.barh(range(len(order)), share, left=left, color=color, label=name)
        left += share
    for y, k in enumerate(order):
        axes.text(1.11, y, solution.sizes[k], va="center", ha="right", fontsize=9)
        axes.text(1.14, y, "  ".join(words[k]), va="center", fontsize=9)
    axes.text(1.11, len(order) - 0.1, "size", va="center", ha="right", fontsize=9, weight="bold")
    axes.text(1.14, len(order) - 0.1, "words", va="center", fontsize=9, weight="bold")
    axes.set(yticks=range(len(order)), yticklabels=[f"cluster {k}" for k in order], xticks=[], xlim=(0, 2.2))
    axes.set_ylim(-0.6, len(order) + 0.3)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    figure.legend(ncols=len(COLORS), fontsize=8, loc="outside lower left", frameon=False, title="topic by hand")
    figure.savefig(path, dpi=90)


def main(folder: Path, n: int | None = None, k: int | None = None) -> snmf_dist.Solution:
    """Documents to clusters with their words."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = load_documents(n)
    sparse.save_npz(folder / "documents.npz", documents.X)

    # Rows of unit length are compared by the angle between them; ids name the documents in every output.
    graph = snmf_dist.build_graph(
        folder / "documents.npz", folder / "text.zarr", metric="cosine", ids=documents.names, overwrite=True
    )
    k = len(np.unique(documents.topics)) if k is None else k
    solution = snmf_dist.fit(graph, k, out=folder / "topics.zarr", overwrite=True)
    print(solution)

    L = np.asarray(solution.membership.compute())
    for label, words in enumerate(cluster_words(documents, solution)):
        central = [solution.ids[int(i)] for i in np.argsort(-L[:, label])[:3]]
        print(f"cluster {label:2d}, {solution.sizes[label]:4d} documents: {', '.join(words)}; as in {central}")
    print("against the topics by hand:", snmf_dist.score(solution.labels, documents.topics))

    solution.export(folder / "topics.csv", overwrite=True)  # id, label, strength, second label, memberships
    try:
        draw(documents, solution, folder / "text.png")
    except ImportError:
        print("pictures need matplotlib; install snmf-dist[report]")
    return solution


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
