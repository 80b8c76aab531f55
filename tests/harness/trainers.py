"""What a trainer has left in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of each file, by its path in the folder."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def report_in(folder: Path) -> dict[str, Any]:
    """Return the only report that is there."""
    (path,) = folder.glob("*_train.json")
    return json.loads(path.read_text("utf-8"))
