"""The figures of a scaling study for the documentation: how well the model predicts, growth, and many workers.

Run ``snmf-dist scale`` first, on a machine that does nothing else, and then
``python -m tests.benchmarks.scaling FOLDER [--json FILE]``.
"""

import argparse
from pathlib import Path
from typing import Any

import snmf_dist
from snmf_dist.scaling.efficiency import LINKS, efficiency_rows
from tests.benchmarks.measure import table, write_json

PLACES = {"process": "one process", "workers": "workers"}
HELD_OUT = {
    "place": "where",
    "workers": "workers",
    "n": "rows",
    "degree": ("entries a row", ".0f"),
    "k": "k",
    "time": ("time, s", ".1f"),
    "foretold": ("predicted, s", ".1f"),
    "error": ("error of time", "+.1%"),
    "memory_error": ("error of memory", "+.1%"),
}
GROWTH = {
    "place": "where",
    "of": "of",
    "degree": ("entries a row", ".0f"),
    "k": "k",
    "workers": "workers",
    "power": ("power of the rows", ".2f"),
}
ENGINE: dict[str, Any] = {
    "workers": "workers",
    "engine": ("engine an iteration, measured, ms", ".0f"),
    "tasks": ("tasks, measured", ".0f"),
    "foretold": ("engine, predicted, ms", ".0f"),
    **{
        f"{kind}, {link}": (f"{kind} efficiency, predicted, {link}", ".0%")
        for link in LINKS
        for kind in ("strong", "weak")
    },
}


def held_out_rows(model: dict[str, Any]) -> list[dict[str, Any]]:
    """The largest size: measured with its spread, and predicted."""
    return [
        {
            **{name: one[name] for name in ("n", "degree", "k", "workers")},
            "place": PLACES[name] + (" (more than cores)" if one["more_than_cores"] else ""),
            "time": {key: one["seconds"][key] for key in ("median", "low", "high")},
            "foretold": one["seconds"]["foretold"],
            "error": one["seconds"]["error"],
            "memory_error": one["memory"]["error"],
        }
        for name, place in model["places"].items()
        for one in place["held_out"]
    ]


def growth_rows(model: dict[str, Any]) -> list[dict[str, Any]]:
    """The powers of the rows, with their intervals."""
    return [
        {
            **one,
            "place": PLACES[name],
            "power": {"median": one["exponent"], "low": one["low"], "high": one["high"]},
        }
        for name, place in model["places"].items()
        for one in place["exponents"]
    ]


def engine_rows(study: Any, model: dict[str, Any]) -> list[dict[str, Any]]:
    """The engine by workers, and the predicted efficiency."""
    place = model["places"].get("workers")
    found = [] if place is None else efficiency_rows(study.measured, place)
    for row in found:
        row["engine"] = None if row["engine"] is None else 1000 * row["engine"]
        row["foretold"] = 1000 * row["engine_foretold"]
    return found


def main() -> None:
    """Print the tables of a study, and write them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", help="the folder of a study of snmf-dist scale")
    options.add_argument("--command", help="what made the study, for the documentation")
    options.add_argument("--json", metavar="FILE")
    given = options.parse_args()
    study = snmf_dist.ScalingStudy.open(given.folder)
    model = study.model
    tables = {
        "held-out": table(HELD_OUT, held_out_rows(model)),
        "growth": table(GROWTH, growth_rows(model)),
        "engine": table(ENGINE, engine_rows(study, model)),
    }
    for one in tables.values():
        keys = [column["key"] for column in one["columns"]]
        print("| " + " | ".join(column["title"] for column in one["columns"]) + " |")
        for row in one["rows"]:
            print("| " + " | ".join(str(row.get(key)) for key in keys) + " |")
        print()
    if given.json:
        done = len(study.measured)
        command = given.command or f"snmf-dist scale --out {Path(given.folder).name} …"
        write_json(
            given.json, benchmark="scaling", tables=tables, command=command, notes=[f"{done} runs were done."]
        )


if __name__ == "__main__":
    main()
