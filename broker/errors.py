"""One tree of errors; who is to mend it decides the branch.

FleetError
├── LocalError          our own configuration, files or code
│   ├── ConfigError     a setting or a manifest is wrong; the message names file, key and remedy
│   ├── StorageError    a disk or database of ours refused
│   └── LinkError       the broker could not be reached, or did not take what we sent
└── RemoteError         what came over the wire is not acceptable; counted, logged once, dropped
    ├── BadTopic        a topic that is not in the tree
    ├── BadMessage      a payload that is too large or does not fit its model
    └── BadStream       an artifact stream that contradicts itself
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import Final

MOST_FAULTS: Final = 20  # of a kind, that are told


def plain(error: BaseException) -> str:
    """Return an error in words: the file and the system's message, without its number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error) or type(error).__name__
    return f"{error.filename}: {why(error)}" if error.filename else error.strerror


def why(error: OSError) -> str:
    """Return the system's message, with the remedy where permission is missing."""
    said = error.strerror or str(error)
    return f"{said}; be its owner, or use sudo" if isinstance(error, PermissionError) else said


def is_closed_pipe(error: OSError, *, windows: bool = sys.platform == "win32") -> bool:
    """Whether nobody reads any more, as after `| head`; the C library of Windows says EINVAL."""
    if isinstance(error, BrokenPipeError):
        return True
    is_of_library = error.filename is None and getattr(error, "winerror", None) is None
    return windows and is_of_library and error.errno == errno.EINVAL


class FleetError(Exception):
    """Base of every error that the fleet raises on purpose.

    `wrong` says what is wrong, and `remedy` what to do about it, which follows after `joint`.
    """

    joint = "; "

    def __init__(self, wrong: str = "", remedy: str = "") -> None:
        super().__init__(f"{wrong}{self.joint}{remedy}" if remedy else wrong)
        self.wrong, self.remedy = wrong, remedy


class LocalError(FleetError):
    """Our own side is at fault: configuration, files, or a broker that cannot be reached."""


class ConfigError(LocalError):
    """A setting is wrong, or several (`faults`). Each fault names file, key and remedy."""

    def __init__(self, wrong: str = "", remedy: str = "", faults: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join(faults) or wrong, remedy)
        self.faults = faults or (str(self),)


def bounded(faults: Sequence[str]) -> tuple[str, ...]:
    """Return the first of many faults, and how many more there are."""
    more = len(faults) - MOST_FAULTS
    return (*faults[:MOST_FAULTS], *([f"and {more} more"] if more > 0 else []))


class StorageError(LocalError):
    """A disk or database on this machine refused an operation."""


class LinkError(LocalError):
    """The broker could not be reached, or did not take a message."""


class RemoteError(FleetError):
    """Something that arrived over the wire is not acceptable."""


class BadTopic(RemoteError):  # noqa: N818 - named for what arrived, as h11 names its peers' faults
    """A topic outside the topic tree, or with a name that no host may have."""


class BadMessage(RemoteError):  # noqa: N818 - see BadTopic
    """A payload that is too large, is not JSON, or does not fit its model."""


class BadStream(RemoteError):  # noqa: N818 - see BadTopic
    """An artifact stream that contradicts itself or its offer."""
