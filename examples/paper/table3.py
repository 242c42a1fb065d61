"""Table 3 of the paper: Reuters-21578, 7800 texts of 20 classes; AC, NMI and seconds for k = 2, 4, …, 14 and 20.

Run ``python examples/paper/table3.py [out]``; ``--quick`` takes k = 2, 4 and 20, two subsets and one start, and
skips SymNMF and APG, which take minutes a start. It goes on where it was if it was killed, and writes rows.csv,
table3.md and table3.png to the folder.
"""

from collections.abc import Sequence

from real import make_table

QUICK = {"ks": (2, 4, 20), "skips": ("SymNMF", "APG")}


def main(arguments: Sequence[str] | None = None) -> str:
    """Run the rows that are missing, and write the table; returns it."""
    return make_table(arguments, about=__doc__, set="Reuters", file="table3", quick=QUICK)


if __name__ == "__main__":
    main()
