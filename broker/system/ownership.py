"""Whether only this user, or root, can have written a file."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from broker.errors import ConfigError


def check_own(path: Path, remedy: str) -> None:
    """Raise `ConfigError` unless only this user or root can write a file and replace it."""
    if os.name != "posix":
        raise ConfigError(f"{path}: whose it is cannot be told on this system; {remedy}")
    for one in (path, path.parent):
        found = one.stat()
        if found.st_uid not in {0, os.geteuid()}:
            who = f"belongs to {_name(found.st_uid)}"
            raise ConfigError(f"{_shown(one)}: {who}, and so is not obeyed; {remedy}")
        # Of a folder with the sticky bit, as /tmp, others cannot take the file away.
        if one == path or not found.st_mode & stat.S_ISVTX:
            _check_writers(one, found, remedy)


def _check_writers(path: Path, found: os.stat_result, remedy: str) -> None:
    groups = found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid)
    if groups or found.st_mode & stat.S_IWOTH:
        whose = "write to it" if path.is_file() else "put another file there"
        command = f"chmod go-w {shlex.quote(_shown(path))}"
        raise ConfigError(
            f"{_shown(path)}: others may {whose} (mode {stat.S_IMODE(found.st_mode):04o}), and so "
            f"its configuration is not obeyed; run `{command}`, or {remedy}"
        )


def _is_private(gid: int) -> bool:
    """Tell whether a group has this user as its only member, as on many systems."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    alone = user.pw_gid == gid and group.gr_name == user.pw_name
    return alone and {*group.gr_mem} <= {user.pw_name}


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _shown(path: Path) -> str:
    return str(path.absolute())
