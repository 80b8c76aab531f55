"""Keeps out what libraries import for uses that nobody makes of them here.

paho looks for an HTTP proxy with `urllib.request`, pydantic for plugins with `importlib.metadata`.
With what these import in turn, such as `email` and `zipfile`, they take 2 MiB, of each program.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Final

# What is taken from the wire is for pydantic and our models to say, and not for plugins that some
# other package has brought; to look for them costs 20 ms at each start, in a large environment.
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
    """Have these modules be empty for what is imported meanwhile, but for those that are loaded."""
    empty = [name for name in names if name not in sys.modules]
    for name in empty:
        sys.modules[name] = ModuleType(name)
    try:
        yield
    finally:
        for name in empty:
            del sys.modules[name]


# shutil imports them to see whether they are there: how it packs archives, which we do not do.
with without("bz2", "lzma", "zlib"):
    import shutil  # noqa: F401
