"""Pieces of HTML: tables, lists of facts, figures, sections and the page around them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

LIMIT = 500_000  # bytes of a page


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text_of(value: Any) -> str:
    """HTML as it is, and all else escaped; no line ends between a number and its per cent sign, or before it."""
    if isinstance(value, Html):
        return value
    return re.sub(r"(&[gl]t;) (?=\d)", "\\1\u00a0", escape(str(value)).replace(" %", "\u00a0%"))


def paragraph(value: Any, kind: str = "") -> Html:
    """One paragraph."""
    return Html(f"<p{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{text_of(value)}</p>")


def facts(pairs: Mapping[str, Any]) -> Html:
    """A list of names and values."""
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{text_of(value)}</dd></div>" for name, value in pairs.items())
    return Html(f'<dl class="facts">{rows}</dl>')


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, words: Iterable[int] = (), caption: str) -> Html:
    """A table; columns hold numbers, but those in `words`. It scrolls on its own where it is too wide."""
    left = set(words)

    def cells(kind: str, values: Sequence[Any], more: str = "") -> str:
        return "".join(
            f"<{kind}{more}{' class=w' if i in left else ''}>{text_of(value)}</{kind}>"
            for i, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return Html(
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{cells('th', head, ' scope=col')}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def figure(svg: str, caption: Any = "") -> Html:
    """A figure with a line below it."""
    below = f"<figcaption>{text_of(caption)}</figcaption>" if caption else ""
    return Html(f"<figure>{svg}{below}</figure>")


def section(title: str, *parts: Any, note: Any = "") -> Html:
    """A section under a heading, with a sentence on what it shows."""
    lead = paragraph(note, "note") if note else ""
    return Html(f"<section><h2>{escape(title)}</h2>{lead}{''.join(parts)}</section>")


def side_by_side(*sections: Html) -> Html:
    """Sections beside each other where there is room."""
    return Html(f'<div class="pair">{"".join(sections)}</div>')


def code(text: str) -> Html:
    """Lines of a terminal."""
    return Html(f'<pre tabindex="0"><code>{escape(text)}</code></pre>')


def page(title: str, *parts: Any) -> str:
    """The whole page. It refers to nothing outside itself, and has no script."""
    style = files("snmf_dist.report").joinpath("page.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n'
        f"<body>\n<main>\n{chr(10).join(parts)}\n</main>\n</body>\n</html>\n"
    )
