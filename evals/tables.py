"""Writes the pages of results from what is recorded, and draws pictures of it; trains nothing.

    python -m evals.tables                                               # evals/PAPER/results.md of all papers
    python -m evals.tables fedtrans --plot fig10a_small_speech_half      # one picture, as a png file

A picture that needs more than recorded figures, such as curves by round, is drawn by its script with --plot.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evals.paper import output
from evals.paper.papers import PAPERS
from evals.paper.runs import Records, locked
from fedscale_ext.core.errors import UserError, listed

FOLDER = Path(__file__).resolve().parent


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages that changed, and say which; or draw one picture. Exit code 2 if that cannot be done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"one or more of {', '.join(PAPERS)} (default: all)")
    parser.add_argument("--plot", metavar="TABLE", help="draw the picture of this table of the one paper named")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the png file (default: TABLE.png)")
    options = parser.parse_args(argv)
    papers = options.papers or PAPERS
    try:
        for paper in papers:
            if paper not in PAPERS:
                raise UserError(f"there is no paper {paper!r}; there are {', '.join(PAPERS)}")
        if options.plot is not None:
            if len(papers) != 1:
                raise UserError("name the one paper whose table --plot names")
            _draw(papers[0], options.plot, options.out or Path(f"{options.plot}.png"))
            return 0
        for paper in papers:
            with locked(FOLDER / paper):
                records = Records.load(FOLDER / paper)
                records.save()  # without lines that no table shows
                if output.write_page(records):
                    print(f"wrote evals/{paper}/results.md")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _draw(paper: str, name: str, path: Path) -> None:
    records = Records.load(FOLDER / paper)
    if name not in records.tables:
        raise UserError(f"{paper} has no table {name!r}; there are {listed(sorted(records.tables), 100)}")
    table = records.tables[name]
    if table.script == output.FLOORS:
        raise UserError("the floors have no picture")
    experiment = output.experiment_of(paper, table.script)
    if experiment.plot is None:
        raise UserError(f"{table.script} has no picture")
    titled = replace(experiment, title=f"{experiment.title} ({table.scale})")
    shown = output.recorded_runs(records, table, experiment.arms)
    output.draw(titled, shown, [row.data for row in table.rows], path)
    print(f"wrote {path}")


if __name__ == "__main__":
    raise SystemExit(main())
