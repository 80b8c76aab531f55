"""Virtual environments with the packages of programs, built by uv, see docs.astral.sh/uv.

    <root>/cache/                  what uv has downloaded; environments have hard links to it
    <root>/whole/<key>/venv/       the environment
    <root>/whole/<key>/build.log   what uv said
    <root>/whole/<key>.used        it is whole; the file's time is that of its last use

An environment is built where it stays: its scripts name its place. Only wheels are installed. A
source distribution would be built by code of its own, which might change what other environments
have hard links to. uv runs in the sandbox, with the network, where programs do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import sysconfig
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.programs import sandbox
from agent.programs.cached_folders import CachedFolders, mark_of
from agent.programs.environment_keys import REQUIREMENTS, is_locked, key_of
from broker.clock import Clock
from broker.programs.unusable import Unusable
from broker.system import children
from broker.system.files import RealDisk

BUILD_S: Final = 1800.0
MAX_WORDS: Final = 400
_SCRIPTS: Final = sysconfig.get_path("scripts")
_LOG_BYTES: Final = 64 * 1024
_FAULT: Final = ("error: ", "\u00d7")  # how uv begins a fault, now and in earlier versions
# Where packages come from is the owner's to say, and how the network is reached.
_KEPT: Final = frozenset({
    "ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "LANG", "NO_PROXY", "PATH", "SSL_CERT_DIR",
    "SSL_CERT_FILE", "SYSTEMROOT", "TEMP", "TMP", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL",
    "UV_INDEX", "UV_INDEX_URL", "UV_NATIVE_TLS", "UV_NO_INDEX", "UV_OFFLINE", "UV_SYSTEM_CERTS",
})  # fmt: skip


def find_uv() -> Path | None:
    """Return uv: beside this interpreter, as the extra `programs` installs it, or on the PATH."""
    found = shutil.which("uv", path=os.pathsep.join((_SCRIPTS, os.environ.get("PATH", ""))))
    return None if found is None else Path(found).resolve()


def python_of(environment: Path) -> Path:
    """Return the interpreter of an environment."""
    at = "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
    return environment / at


class Environments:
    """The folder of environments. Its methods may be called on any thread, and raise OSError."""

    def __init__(
        self,
        root: Path,
        limit_bytes: float,
        clock: Clock,
        *,
        uses_sandbox: bool,
        inherited: Mapping[str, str] = os.environ,
        limit_s: float = BUILD_S,
    ) -> None:
        """Make the folder. `limit_s` is the time for one build."""
        self._root = root.absolute()
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._uses_sandbox = uses_sandbox
        self._inherited = {name: inherited[name] for name in inherited if name.upper() in _KEPT}
        self._limit_s = limit_s
        self._disk = RealDisk()
        self._turn = threading.Lock()  # who has it may use the cache: one builds at a time
        self._guard = threading.Lock()  # of the next two
        self._running: children.Process | None = None
        self._is_stopped = False
        self._cache = self._root / "cache"
        self._disk.make_folder(self._cache)
        self._folders = CachedFolders(self._root / "whole", limit_bytes)

    def find(self, parcel: Path) -> Path | None:
        """Return the environment of the parcel in a folder, and note its use; none: not built."""
        key = key_of(parcel)
        if not mark_of(self._folders.path(key)).exists():
            return None  # or half built
        folder = self._folders.folder(key)
        return None if folder is None else folder / "venv"

    def build(self, parcel: Path) -> Path:
        """Return the environment of the parcel in a folder, built unless it is there.

        Raises `Unusable` when a package cannot be installed, or the time is over.
        """
        with self._turn:
            return self.find(parcel) or self._build(key_of(parcel), parcel.absolute())

    def stop(self) -> None:
        """End each build that is going on, and begin no other."""
        with self._guard:
            self._is_stopped = True
            if self._running is not None:
                _kill(self._running)

    def collect(self, in_use: Container[str]) -> None:
        """Keep it all within the limit: the cache goes first, then what was used least lately.

        None of the keys in use is deleted.
        """
        if self._disk.tree_bytes(self._root) > self._limit_bytes:
            self._drop_cache()
        self._folders.collect(in_use, self._clock().wall_s)

    def _build(self, key: str, parcel: Path) -> Path:
        folder, end_s = self._folders.path(key), self._clock().mono_s + self._limit_s
        venv, log = folder / "venv", folder / "build.log"
        self._disk.remove_tree(folder)  # of a build that failed
        self._disk.make_folder(folder)
        for command in self._commands(parcel, venv):
            if self._run(self._placed(command, parcel), venv, log, end_s):
                raise Unusable("not-installed", quoted=_words(log, parcel))
        # No later start can do it: a program cannot write there. What does not compile is data.
        # Without `site`, no package's code runs, as that of *.pth files would.
        compiling = [sys.executable, "-I", "-S", "-m", "compileall", "-q", str(venv)]
        self._run(self._placed(compiling, parcel), venv, log, end_s)
        self._folders.folder(key)
        return venv

    def _commands(self, parcel: Path, venv: Path) -> Iterator[list[str]]:
        """Yield what makes an environment: of `uv.lock`, else of `requirements.txt`."""
        uv = find_uv()
        if uv is None:
            raise Unusable("no-uv")
        common = ["--directory", str(parcel), "--no-config", "--no-python-downloads",
                  "--no-progress", "--color", "never", "--link-mode", "hardlink"]  # fmt: skip
        this, its = ["--python", sys.executable], ["--python", str(python_of(venv))]
        if is_locked(parcel):
            frozen = ["--frozen", "--no-install-project", "--no-dev", "--no-build"]
            yield [str(uv), "sync", *frozen, *this, *common]
            return
        yield [str(uv), "venv", *this, *common, str(venv)]
        wheels = ["--no-build", "-r", REQUIREMENTS]
        yield [str(uv), "pip", "install", *wheels, *its, *common]

    def _placed(self, command: Sequence[str], parcel: Path) -> Sequence[str]:
        """Return a command in the sandbox, where one is used."""
        if not self._uses_sandbox:
            return command
        uv = find_uv()  # which may lie anywhere
        reads = (*sandbox.interpreter(), parcel, *([] if uv is None else [uv]))
        return sandbox.sandboxed(
            command, sandbox.View(parcel, reads, (self._root,), None, network=True)
        )

    def _run(self, command: Sequence[str], venv: Path, log: Path, end_s: float) -> int:
        """Run a command to its end, which is in time; return its exit code."""
        environment = self._inherited | {
            "HOME": sandbox.HOME,
            "UV_CACHE_DIR": str(self._cache),
            "UV_PROJECT_ENVIRONMENT": str(venv),
        }
        with log.open("ab") as said, self._started(command, environment, said.fileno()) as process:
            if not children.has_ended(process, max(0.0, end_s - self._clock().mono_s)):
                raise Unusable("slow", limit_s=self._limit_s)
            if self._is_stopped:
                raise Unusable("leaving")
            return process.returncode

    @contextlib.contextmanager
    def _started(
        self, command: Sequence[str], environment: Mapping[str, str], said: int
    ) -> Iterator[children.Process]:
        with self._guard:
            if self._is_stopped:
                raise Unusable("leaving")
            process = children.start(command, environment, stdout=children.NULL, stderr=said)
            self._running = process
        try:
            yield process
        finally:
            with self._guard:
                _kill(process)
                self._running = None
            children.has_ended(process, children.KILL_S)

    def _drop_cache(self) -> None:
        """Delete the cache, unless a build uses it; environments keep their files."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            gone = self._cache.with_name("cache.gone")  # no half of it is ever used
            self._disk.remove_tree(gone)
            self._disk.replace(self._cache, gone)
            self._disk.make_folder(self._cache)
            self._disk.remove_tree(gone)
        finally:
            self._turn.release()


def _kill(process: children.Process) -> None:
    """End a program that `children.start` has started, and what it has started."""
    if process.poll() is not None:
        return
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _words(log: Path, parcel: Path) -> str:
    """Return what uv says of its failure, in one line, without the parcel's place on this host."""
    with log.open("rb") as file:
        text = file.read(_LOG_BYTES).decode("utf-8", "replace").replace(f"{parcel}{os.sep}", "")
    lines = [line.strip() for line in text.splitlines()]
    at = next((n for n, line in enumerate(lines) if line.startswith(_FAULT)), 0)
    words = " ".join(" ".join(filter(None, lines[at:])).split())
    return words.removeprefix("error: ")[:MAX_WORDS]
