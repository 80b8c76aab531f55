"""Write a stored model as ONNX, for other runtimes.

    python -m agent.trainer.export --bundle BUNDLE --out model.onnx

What goes in and what comes out: docs/reference/trainers.md. Needs the extra `onnx`.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.trainer.common.errors import BadInputError
from agent.trainer.common.files import write_atomically
from agent.trainer.common.progress import Progress, program
from agent.trainer.inference.stored_model import damage_named, read_stored

NEEDED: Final = ("onnx", "onnxmltools")


def export(bundle: Path, out: Path) -> None:
    """Write the model in `bundle` to `out`. Raises BadInputError."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        remedy = "pip install 'training-fleet[onnx]'"
        raise BadInputError.at("export", ", ".join(missing), "not installed", remedy)
    from agent.trainer.inference.onnx_export import as_onnx

    stored = read_stored(bundle)
    with damage_named(stored):
        content = as_onnx(stored)
    write_atomically(out, content)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="agent.trainer.export", description="Write a stored model as ONNX."
    )
    text = "What `fleet get` brought: bundle.tar.zst, or its folder."
    parser.add_argument("--bundle", type=Path, required=True, help=text)
    parser.add_argument("--out", type=Path, required=True, help="The ONNX file.")
    args = parser.parse_args(argv)

    def work(progress: Progress) -> None:
        export(args.bundle, args.out)
        progress.result({}, [str(args.out)])

    return program(work)


if __name__ == "__main__":
    sys.exit(main())
