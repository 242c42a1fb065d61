"""Table 2 of the paper: COIL-20, 1440 pictures of 20 things; AC, NMI and seconds for k = 2, 4, …, 14 and 20.

Run ``python examples/paper/table2.py [out]``; ``--quick`` takes k = 2, 6 and 20, two subsets and one start. It
goes on where it was if it was killed, and writes rows.csv, table2.md and table2.png to the folder.
"""

from collections.abc import Sequence

from real import make_table

QUICK = {"ks": (2, 6, 20), "skips": ("NMF, scikit-learn",)}


def main(arguments: Sequence[str] | None = None) -> str:
    """Run the rows that are missing, and write the table; returns it."""
    return make_table(arguments, about=__doc__, set="COIL-20", file="table2", quick=QUICK)


if __name__ == "__main__":
    main()
