"""Prevents imports of libraries that the fleet's programs never use.

paho looks for an HTTP proxy with `urllib.request`, pydantic for plugins with `importlib.metadata`:
together 2 MiB of each program, and 20 ms of each start.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Final

NO_PLUGINS: Final = ("PYDANTIC_DISABLE_PLUGINS", "__all__")
_LOADER: Final = "pydantic.plugin._loader"


def disable_plugins() -> None:
    """Have pydantic look for no plugins, unless the environment says which to disable."""
    name, value = NO_PLUGINS
    if os.environ.setdefault(name, value) == value and _LOADER not in sys.modules:
        loader = ModuleType(_LOADER)
        loader.__dict__["get_plugins"] = tuple
        sys.modules[_LOADER] = loader


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Make these modules empty for what is imported meanwhile, unless they are loaded already."""
    empty = [name for name in names if name not in sys.modules]
    for name in empty:
        sys.modules[name] = ModuleType(name)
    try:
        yield
    finally:
        for name in empty:
            del sys.modules[name]


# shutil imports these to know how to pack archives, which nobody here does: 0.3 MiB.
with without("bz2", "lzma", "zlib"):
    import shutil  # noqa: F401
