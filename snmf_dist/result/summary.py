"""A solution in a few lines, for notebooks."""

import math
from typing import Any


def summary(solution: Any) -> dict[str, Any]:
    """What a notebook shows of a `Solution`; only what is in memory is used."""
    sizes = sorted(solution.sizes.tolist(), reverse=True)
    last, bound = solution.history[-1], solution.bound
    share = f" ({solution.captured / bound:.1%} of the bound)" if bound > 0 else ""
    return {
        "status": f"{solution.status.name}: {solution.status.value}",
        "rows, clusters": f"{len(solution.labels):,}, {solution.k}",
        "captured": f"{solution.captured:.6g}{share}",
        **({} if math.isnan(last.modularity) else {"modularity": f"{last.modularity:.3f}"}),
        "cluster sizes": ", ".join(f"{size:,}" for size in sizes[:10]) + (", …" if solution.k > 10 else ""),
        "in no cluster": f"{solution.n_unassigned:,}",
        "iterations": solution.n_iter,
    }
