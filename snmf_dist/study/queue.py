"""In which order runs go: every part of the grid has something early."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from snmf_dist.errors import InputError
from snmf_dist.study.spec import Run

Priority = Callable[[Mapping[str, Any]], float] | str | None


def in_order(runs: Sequence[Run], priority: Priority = None) -> list[Run]:
    """Runs in the order they go.

    First one seed of everything, then the next; within that the values of k from coarse to fine (the first, the
    last, the middle one, …), and all graphs and other settings of a k side by side.

    Parameters
    ----------
    priority : callable or str, optional
        A function of a run's settings, whose lowest values go first; or the name of a setting, "k" for small k
        first and "-k" for large k. Runs of equal priority go in the order above.
    """
    ks = sorted({run.settings["k"] for run in runs})
    place = {ks[i]: rank for rank, i in enumerate(coarse_to_fine(len(ks)))}
    turn: dict[str, int] = {}
    seen: dict[Any, int] = {}
    for run in runs:
        others = (run.graph, *(str(value) for name, value in run.settings.items() if name != "seed"))
        turn[run.run_id] = seen[others] = seen.get(others, -1) + 1
    key = _priority(runs, priority)
    return sorted(runs, key=lambda run: (key(run), turn[run.run_id], place[run.settings["k"]]))


def coarse_to_fine(n: int) -> list[int]:
    """Numbers below n: the first, the last, then again and again the middle of the widest gap.

    Examples
    --------
    >>> coarse_to_fine(6)
    [0, 5, 2, 3, 1, 4]
    """
    found = [0, n - 1][:n]
    gaps = [(0, n - 1)] if n > 2 else []
    while gaps:
        low, high = max(gaps, key=lambda gap: gap[1] - gap[0])
        gaps.remove((low, high))
        middle = (low + high) // 2
        found.append(middle)
        gaps += [gap for gap in ((low, middle), (middle, high)) if gap[1] - gap[0] > 1]
    return found


def _priority(runs: Sequence[Run], priority: Priority) -> Callable[[Run], Any]:
    if priority is None:
        return lambda run: 0
    if not isinstance(priority, str):
        if not callable(priority):
            raise InputError(f"priority is {priority!r}; expected a function of a run's settings, or 'k' or '-k'")
        function = priority
        return lambda run: function({"graph": run.graph, **run.settings})
    name, sign = priority.removeprefix("-"), -1 if priority.startswith("-") else 1
    values = [run.settings.get(name) for run in runs]
    if not all(isinstance(value, int | float) for value in values):
        raise InputError(
            f"priority is {priority!r}; expected a setting that is a number in every run, as 'k' or '-k'"
        )
    return lambda run: sign * run.settings[name]
