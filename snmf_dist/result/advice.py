"""What a user should know before using a result, as warnings that name a next move."""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from snmf_dist.errors import NotConverged, ResultWarning

WEAK = 0.02  # modularity below which clusters are hardly better than one
GIANT = 0.95  # share of the labelled rows in one cluster that leaves nothing to the others


def warn_of(solution: Any, *, stacklevel: int = 3) -> None:
    """Warn of what a user should know before using the result, a `Solution`."""
    for kind, text in advice_on(solution):
        warnings.warn(text, kind, stacklevel=stacklevel)


def advice_on(solution: Any) -> list[tuple[type[UserWarning], str]]:
    """What a user should know before using the result, each with the kind of its warning."""
    found: list[tuple[type[UserWarning], str]] = []
    if not solution.status.converged:
        text = f"{solution.status.name} after {solution.n_iter} iterations: {solution.status.value}"
        found.append((NotConverged, text))
    texts = (*_of_parts(solution), *_of_basis(solution), *_of_clusters(solution))
    return found + [(ResultWarning, text) for text in texts]


def _of_parts(solution: Any) -> Iterator[str]:
    facts, k = solution.provenance, solution.k
    parts = facts.get("parts", 1)
    if facts.get("joined_rows"):
        yield (
            f"{facts['joined_rows']} rows of small parts of the graph have the label of the row outside that "
            "their part is nearest to; their memberships are zero"
        )
    apart = facts.get("speck_rows", 0) - facts.get("joined_rows", 0)
    if facts.get("specks") and apart > 0:
        yield (
            f"{apart} rows are in {facts['specks']} parts of the graph of fewer than "
            f"{facts['speck_limit']} rows, and get label -1; specks='own' lets each part take a cluster"
            + (", specks='join' gives them the label of the nearest row outside" if facts.get("built") else "")
        )
    if parts > k:
        yield (
            f"the graph falls into {parts} parts of {facts['speck_limit']} rows or more, but k is {k}: the "
            f"largest {k} begin with a cluster each, the others share one; "
            + (
                "build the graph with more neighbors or connect=True"
                if facts.get("built")
                else f"k={parts} gives each its own"
            )
        )


def _of_basis(solution: Any) -> Iterator[str]:
    facts, gaps = solution.provenance, solution.eigengap
    if not facts.get("basis_converged", True):
        yield (
            f"the leading eigenvectors were still moving after {facts['basis_products']} products (residual "
            f"{facts['basis_residual']:.0e}), so the start may mix clusters that hang together almost equally "
            "well; another seed or n_init=4 shows which of the clusters are stable"
        )
    values = facts["eigenvalues"]
    uncounted = facts.get("components", 1) is None and len(gaps) == solution.k
    if uncounted and values[-1] > 0.9 * values[0] and gaps[-1] < 1e-4 * values[0]:
        yield (
            f"eigenvalues {solution.k} and {solution.k + 1} of A are equal: more parts than k hang together "
            "equally well, and which of them get a cluster is arbitrary; import the graph again, so that its "
            "components are counted"
        )


def _of_clusters(solution: Any) -> Iterator[str]:
    facts: Any = solution.provenance
    sizes = solution.sizes
    empty = int(np.count_nonzero(sizes == 0))
    if empty:
        yield f"{empty} of {solution.k} clusters are empty; try a smaller k or another seed"
    modularity = solution.history[-1].modularity
    share = float(sizes.max() / max(sizes.sum(), 1))
    if solution.k > 1 and ((not math.isnan(modularity) and modularity < WEAK) or share > GIANT):
        found = "" if math.isnan(modularity) else f"modularity {modularity:.3f}, "
        yield (
            f"these clusters are hardly better than one single cluster ({found}{share:.0%} of the rows in the "
            "largest); " + _better_graph(facts)
        )
    joined = facts.get("joined_rows", 0)
    lost = solution.n_unassigned + joined - facts.get("isolated", 0) - facts.get("speck_rows", 0)
    if facts.get("isolated") and not joined:
        yield f"{facts['isolated']} of {len(solution.labels)} rows have no edges and get label -1"
    if lost > 0:
        yield (
            f"{lost} rows that have edges belong to no cluster (label -1): their part of the graph got none; try "
            "another seed"
        )


def _better_graph(facts: Any) -> str:
    """What may show clusters where this graph shows none."""
    if facts.get("built"):
        return "build the graph with another metric or more neighbors, or try another k"
    if facts.get("tau") == 0:
        return "import the graph with tau set to a quarter of its mean degree, or try another k"
    return "try another k, or init='spectral'"
