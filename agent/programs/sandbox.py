"""Runs a program in bubblewrap, see bwrap(1): it sees its parcel, its output folder, and no more.

It has no home and no network. It has its own process ids, /tmp and /dev/shm, and of the devices its
own GPU alone. It reads everything that it sees, and writes its output and its checkpoint only.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.system import children

REMEDY: Final = "install bubblewrap (bwrap), and let this user make namespaces"
HOME: Final = "/tmp/home"  # noqa: S108 - in the sandbox's own /tmp
_TRIAL_S: Final = 10.0
# The system's own programs and libraries; on most systems all but the first are links into it.
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_ETC: Final = ("alternatives", "group", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime",
               "nsswitch.conf", "passwd")  # fmt: skip
_ETC_NETWORK: Final = ("ca-certificates", "hosts", "pki", "resolv.conf", "ssl")
_GPUS: Final = Path("/proc/driver/nvidia/gpus")
_GPU: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "dxg")  # the last is WSL's
# CUDA looks there for the GPU; /sys/kernel and /sys/fs stay hidden.
_SYS_OF_GPU: Final = ("bus", "class", "dev", "devices", "module")
# Root may write there without any capability, and so set the kernel's parameters. All of /proc
# cannot be read-only: CUDA writes the names of its threads into /proc/PID/task.
_PROC: Final = ("acpi", "asound", "bus", "driver", "fs", "irq", "mtrr", "scsi", "sys",
                "sysrq-trigger", "tty")  # fmt: skip
# Of a prefix of Python, which may be a home or hold one.
_PREFIX: Final = ("bin", "etc", "include", "lib", "lib64", "libexec", "pyvenv.cfg", "share", "ssl")
_KILLED: Final = 128  # and the signal's number: bwrap's exit code for a program that one has ended
_LAST_SIGNAL: Final = 64
# SIGTERM goes to the whole process group. bwrap would end at once and take the program with it,
# before that has written its checkpoint; so bwrap ignores it, and the program does not.
_IGNORING: Final = "--ignore-signal=TERM"
_INNER: Final = ("env", "--default-signal=TERM")


@dataclass(frozen=True, slots=True)
class View:
    """What a program sees: folders that it reads and writes; it starts in `start`."""

    start: Path
    reads: Sequence[Path]
    writes: Sequence[Path]
    gpu: int | None = None
    network: bool = False


def sandboxed(command: Sequence[str], view: View) -> list[str]:
    """Return the argument vector that runs a command in the sandbox. The folders have to exist."""
    outer = (_own("env"), _IGNORING, _own("bwrap"))
    return [*outer, *_arguments(view), "--", *_INNER, *command]


def interpreter() -> tuple[Path, ...]:
    """Return the parts of the agent's own Python interpreter and its packages.

    A prefix may be a link, and other links may name what that leads to: both are returned.
    """
    prefixes = [Path(one) for one in (sys.base_prefix, sys.prefix)]
    prefixes += [one.resolve() for one in prefixes]
    parts = (one / part for one in prefixes for part in _PREFIX)
    return tuple(dict.fromkeys(one for one in parts if one.exists() and not _is_system(one)))


def exit_code(code: int) -> int:
    """Return the exit code of a program by that of its sandbox: negative for a signal."""
    return _KILLED - code if _KILLED < code <= _KILLED + _LAST_SIGNAL else code


def is_installed() -> bool:
    """Whether bubblewrap is on this host, be it usable or not. It is for Linux."""
    return sys.platform == "linux" and shutil.which("bwrap") is not None


@functools.cache
def works() -> bool:
    """Whether bubblewrap is here and may make its namespaces."""
    if not is_installed():
        return False
    view = View(Path("/"), (), ())
    try:
        return children.answer_of(sandboxed(["true"], view), _TRIAL_S).code == 0
    except OSError:
        return False


def _own(name: str) -> str:
    """Return the path of a program that runs outside the sandbox.

    The agent's PATH finds it. The job's PATH begins with the packages of the program, and one of
    these might have a script of that name.
    """
    found = shutil.which(name)
    return f"/usr/bin/{name}" if found is None else os.path.abspath(found)  # noqa: PTH100


def _arguments(view: View) -> Iterator[str]:
    yield from ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL")
    yield from _system()
    yield from ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", HOME)  # noqa: S108
    for name in _PROC:
        yield from ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")
    for name in (*_ETC, *(_ETC_NETWORK if view.network else ())):
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    if view.network:
        yield "--share-net"
    if view.gpu is not None:
        for name in (_node(view.gpu), *_GPU):
            yield from ("--dev-bind-try", f"/dev/{name}", f"/dev/{name}")
        for name in _SYS_OF_GPU:
            yield from ("--ro-bind-try", f"/sys/{name}", f"/sys/{name}")
    for path in view.reads:
        yield from ("--ro-bind", str(path), str(path))
    for path in view.writes:
        yield from ("--bind", str(path), str(path))
    yield from ("--remount-ro", "/", "--chdir", str(view.start))


def _node(gpu: int) -> str:
    """Return the name in /dev of a GPU, by the driver's number: containers may have others."""
    told = sorted(_GPUS.glob("*/information"))  # by PCI address, as the driver counts
    found = re.search(r"Device Minor:\s*(\d+)", told[gpu].read_text()) if gpu < len(told) else None
    return f"nvidia{gpu if found is None else found[1]}"


def _system() -> Iterator[str]:
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.is_dir():
            yield from ("--ro-bind", name, name)


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(name) for name in _SYSTEM)
