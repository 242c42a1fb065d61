"""``python -m snmf_dist`` is the command ``snmf-dist``."""

from snmf_dist.cli import main

if __name__ == "__main__":
    main(prog_name="snmf-dist")
