"""The classes that are made of a base, for tests that want each of them to be treated."""

from __future__ import annotations

import sys


def kinds(base: type) -> set[type]:
    """Every class below `base` that is no base itself."""
    # What `dataclass` replaces to add slots is a subclass still, until it is collected.
    below = [
        one for one in base.__subclasses__()
        if vars(sys.modules[one.__module__]).get(one.__name__) is one
    ]  # fmt: skip
    return {one for child in below for one in kinds(child)} if below else {base}
