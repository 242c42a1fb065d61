"""What the manifest of a graph store tells people."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def coupling(block: Mapping[str, Any], bounds: np.ndarray) -> dict[str, float]:
    """How much the blocks depend on each other: the share of entries in diagonal blocks, and the mean halo.

    The halo is in block sizes. Both say how good the order of the rows is: 1 and 0 at best.
    """
    _, _, diagonal, halo = zip(*block["blocks"], strict=True)
    return {
        "diagonal": sum(diagonal) / block["nnz"],
        "halo": float(np.mean(np.array(halo) / np.diff(bounds))),
        "blocks": len(bounds) - 1,
    }


def describe(block: Mapping[str, Any], bounds: np.ndarray) -> dict[str, Any]:
    """Sizes of a graph, and what to know before clustering it."""
    n, nnz = block["n"], block["nnz"]
    coupled = coupling(block, bounds)
    facts = {
        "rows": n,
        "entries": nnz,
        "entries per row": round(nnz / n, 2),
        "dtype": block["dtype"],
        "blocks": len(bounds) - 1,
        "rows a block": int(np.diff(bounds).max()),
        "normalize": block["normalize"],
        "tau": round(float(block.get("tau", 0.0)), 6),
        "zero-degree rows": block["zero_degree"],
        "self-loops": block["self_loops"],
        "reordered": block["reordered"],
        "in diagonal blocks": f"{coupled['diagonal']:.1%} of entries",
        "halo": f"{coupled['halo']:.2f} block sizes",
        "bytes in memory": nnz * (np.dtype(block["dtype"]).itemsize + 4) + 8 * n,
    }
    if "ids" in block:
        facts["ids"] = "text" if block["ids"]["kind"] == "text" else "whole numbers"
    return facts


def made(block: Mapping[str, Any]) -> dict[str, Any]:
    """How a graph was made."""
    return {f"made: {key}": value for key, value in block["made"].items()}
