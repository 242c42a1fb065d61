"""A small table of facts, for notebooks."""

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

STYLE = "border-collapse:collapse;font-size:13px"
NAME = "text-align:left;opacity:.7;font-weight:normal;padding:1px 16px 1px 0;vertical-align:top"
VALUE = "text-align:left;padding:1px 0;font-variant-numeric:tabular-nums"


def card(title: str, facts: Callable[[], Mapping[str, Any]]) -> str:
    """HTML of a title and a line for each fact; the title alone if the facts cannot be told.

    Examples
    --------
    >>> "<b>Graph</b>" in card("Graph", lambda: {"rows": 5}), "rows" in card("Graph", lambda: {"rows": 5})
    (True, True)
    """
    try:
        lines = "".join(
            f'<tr><th scope="row" style="{NAME}">{escape(name)}</th>'
            f'<td style="{VALUE}">{escape(str(value))}</td></tr>'
            for name, value in facts().items()
        )
    except Exception:  # what a notebook shows must never hide the work behind it
        lines = ""
    return f'<div><b>{escape(title)}</b><table style="{STYLE}"><tbody>{lines}</tbody></table></div>'
