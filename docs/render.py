"""Fill the tables of the documentation from the JSON files in docs/results.

Run ``python docs/render.py`` after a JSON file has changed; ``--check`` only says which pages differ. A page marks
the places by comments, and what stands between them is replaced::

    <!-- table speed.json claims -->   a table of the file
    <!-- about speed.json -->          date, machine, versions and command
    <!-- notes speed.json -->          the remarks on the run, a bullet each
    <!-- end -->

Where there is no such file yet, the page says so. The form of the files is that of
``tests/benchmarks/measure.py``.
"""

import json
import re
import sys
from datetime import date
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS / "results"
PLACE = re.compile(r"(<!-- (table|about|notes) ([\w.-]+\.json)(?: ([\w-]+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def render(page: str) -> str:
    """The text of a page with every marked place filled."""

    def fill(found: re.Match) -> str:
        opening, kind, file, name, closing = found.groups()
        if not (RESULTS / file).exists():
            return f"{opening}\nNot measured yet.\n\n{closing}"
        data = json.loads((RESULTS / file).read_text(encoding="utf-8"))
        return f"{opening}\n{KINDS[kind](data, name)}\n\n{closing}"

    return PLACE.sub(fill, page)


def render_table(data: dict[str, Any], name: str) -> str:
    """A table as Markdown."""
    table = data["tables"][name]
    columns = table["columns"]
    lines = [[column["title"] for column in columns], ["---"] * len(columns)]
    lines += [[cell(row.get(column["key"]), column.get("format")) for column in columns] for row in table["rows"]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(value: Any, form: str | None = None) -> str:
    """A cell as text.

    Examples
    --------
    >>> cell({"median": 274.0, "low": 232.0, "high": 337.0}, ".0f"), cell({"found": 85, "of": 100, "paper": 89})
    ('274 (232 to 337)', '85 of 100 (paper 89)')
    >>> cell({"found": 1.5, "error": 0.21}, "+.1f")
    '+1.5 ± 0.2'
    """
    if value is None or value == "":
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return format(value, form or "g") if isinstance(value, float) or form else str(value)
    main = value.get("median", value.get("found"))
    parts = [] if main is None and "low" in value else [("> " if value.get("above") else "") + cell(main, form)]
    if "of" in value:
        parts.append(f"of {value['of']}")
    if "low" in value:
        apart = f"{cell(value['low'], form)} to {cell(value['high'], form)}"
        parts.append(f"({apart})" if parts else apart)
    if value.get("error") is not None:
        parts.append(f"± {cell(value['error'], form and form.lstrip('+'))}")
    if "paper" in value:
        parts.append(f"(paper {cell(value['paper'], form)})")
    return " ".join(parts)


def render_about(data: dict[str, Any], name: str | None = None) -> str:
    """One paragraph on when, where and with what the figures were made."""
    day = date.fromisoformat(data["date"]) if data["date"] else None
    machine, versions = data["machine"], dict(data["versions"])
    place = (
        f"{machine['cores']} cores of {machine['processor']}" if machine["processor"] else "machine not recorded"
    )
    if "memory_gb" in machine:
        place += f", {machine['memory_gb']:g} GB of memory"
    python = versions.pop("python", None)
    packages = ", ".join([*([f"Python {python}"] if python else []), *(f"{k} {v}" for k, v in versions.items())])
    when = f"Measured on {day.day} {day:%B %Y}" if day else "Date not recorded"
    return f"{when}: {place}; {packages or 'versions not recorded'}. Command: `{data['command']}`."


def render_notes(data: dict[str, Any], name: str | None = None) -> str:
    """The remarks as a list."""
    return "\n".join(f"- {note}" for note in data["notes"]) or "- None."


KINDS = {"table": render_table, "about": render_about, "notes": render_notes}


def pages() -> list[Path]:
    """The pages that may have such places."""
    return [DOCS.parent / "README.md", *sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)]


def main(check: bool = False) -> int:
    """Fill all pages, or only tell which differ; returns how many did."""
    differ = 0
    for path in pages():
        text = path.read_text(encoding="utf-8")
        filled = render(text)
        if filled != text:
            differ += 1
            print(f"{path.relative_to(DOCS.parent)}: {'differs from its JSON' if check else 'filled'}")
            if not check:
                path.write_text(filled, encoding="utf-8")
    return differ


if __name__ == "__main__":
    only = "--check" in sys.argv[1:]
    found = main(check=only)
    sys.exit(1 if only and found else 0)
