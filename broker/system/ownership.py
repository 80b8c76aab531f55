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
        found, shown = one.stat(), one.absolute()
        if found.st_uid not in {0, os.geteuid()}:
            who = f"belongs to {_owner(one, found.st_uid)}"
            raise ConfigError(f"{shown}: {who}, and so is not obeyed; {remedy}")
        # Of a folder with the sticky bit, as /tmp, others cannot take the file away.
        is_safe = one != path and bool(found.st_mode & stat.S_ISVTX)
        by_group = found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid)
        if not is_safe and (by_group or found.st_mode & stat.S_IWOTH):
            what = "write to it" if one == path else "put another file there"
            command = f"chmod go-w {shlex.quote(str(shown))}"
            raise ConfigError(
                f"{shown}: others may {what} (mode {stat.S_IMODE(found.st_mode):04o}), and so its "
                f"configuration is not obeyed; run `{command}`, or {remedy}"
            )


def _owner(path: Path, uid: int) -> str:
    try:
        return path.owner()
    except KeyError:
        return f"user {uid}"


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
