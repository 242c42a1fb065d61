"""The solvers by name. A new one is a file of its own and a place in `SOLVERS`.

What the loop, the planner and the command line need of a solver stands on its class: see `problem.Solver`.
"""

from typing import Any

from snmf_dist.solve.admm import ADMM
from snmf_dist.solve.apg import APG
from snmf_dist.solve.hals import HALS

SOLVERS: dict[str, Any] = {solver.name: solver for solver in (ADMM, APG, HALS)}
