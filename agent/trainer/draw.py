"""Draw the page of each report in a folder, as an HTML file beside it.

    python -m agent.trainer.draw FOLDER

A machine without the trainers' libraries can do it. The same report gives the same page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.trainer.common.errors import BadInputError
from agent.trainer.common.files import write_atomically
from agent.trainer.common.progress import Progress, program
from agent.trainer.data.schema import read_json
from agent.trainer.evaluation.page import render
from agent.trainer.evaluation.report_schema import Report

_REMEDY: Final = "only a report by the trainers of this version can be drawn"


def draw(folder: Path) -> list[str]:
    """Write the pages and return their paths. Raises BadInputError."""
    pages = {}
    for path in sorted(folder.rglob("*_train.json")):
        report = read_json(path, Report, _REMEDY)
        pages[path.with_suffix(".html")] = render(report).encode()
    if not pages:
        raise BadInputError(f"{folder}: has no report; give the folder of a job's result")
    for path, content in pages.items():
        write_atomically(path, content)
    return [str(path) for path in pages]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="agent.trainer.draw", description="Draw the page of each report in a folder."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="A job's result.")
    folder = parser.parse_args(argv).folder

    def work(progress: Progress) -> None:
        progress.result({}, draw(folder))

    return program(work)


if __name__ == "__main__":
    sys.exit(main())
