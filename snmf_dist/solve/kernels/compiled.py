"""How the loops of `fused` and `weights` are compiled, and whether what was compiled can be kept."""

import warnings
from typing import Any

from numba import njit

from snmf_dist.errors import SlowKernels


def _can_keep() -> bool:
    """Whether numba finds a folder to keep kernels in: beside this file, in the home folder, or as it is told."""
    try:
        njit(cache=True)(lambda: 1)
    except RuntimeError:  # numba: "no locator available"
        text = (
            "compiled kernels cannot be kept: neither the folder of snmf_dist nor a home folder can be written "
            "to, so each process compiles them, about 20 seconds; set NUMBA_CACHE_DIR to one that can"
        )
        warnings.warn(text, SlowKernels, stacklevel=2)
        return False
    return True


FAST: dict[str, Any] = {"nogil": True, "cache": _can_keep(), "fastmath": {"contract", "reassoc", "nsz"}}
