"""The programs of this host: is one trusted, is it here, and how is it started."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.programs import sandbox
from agent.programs.environment_keys import key_of
from agent.programs.environments import Environments, python_of
from agent.programs.parcels import Parcels
from agent.programs.settings import ProgramSettings
from broker.clock import Clock
from broker.errors import BadMessage, FleetError
from broker.pki.identity import CA_FILE
from broker.programs.program_file import Program, read_program
from broker.programs.trust import Verify, verifier
from broker.programs.unusable import Unusable
from broker.protocol.hyperschema import check_hyper
from broker.protocol.loglines import MAX_LINE_CHARS
from broker.protocol.messages import Assign, ProgramsAllowed
from broker.protocol.reasons import of_program

METRICS_FILE: Final = "metrics.json"
MAX_METRICS_BYTES: Final = 64 * 1024
_PYTHON: Final = frozenset({"python", "python3"})
_WORK: Final = "program"  # folder of a program that runs without a sandbox, in the work folder
# What a program is told of the machine, of all that the agent's environment says.
_ENVIRONMENT: Final = frozenset({"LANG", "LC_ALL", "PATH", "SYSTEMROOT", "TZ"})


@dataclass(frozen=True, slots=True)
class Launch:
    """How a trainer is started: argument vector, environment, and folder to start in.

    `modules` are those that a Python program wants to find imported.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    modules: Sequence[str] = ()


class Programs:
    """The programs that the owner lets in, by these settings."""

    def __init__(
        self,
        settings: ProgramSettings,
        parcels: Parcels,
        verify: Verify | None,
        environments: Environments | None = None,
        building: Callable[[Callable[[], None]], object] = lambda build: build(),
    ) -> None:
        """Without `verify` no signature counts.

        `building` runs a function that installs packages, which may take half an hour.
        """
        self._settings = settings
        self._verify = verify
        self._environments = environments
        self.parcels = parcels
        self.building = building

    def allowed(self) -> ProgramsAllowed | None:
        """Return what the owner lets in, for the capability."""
        return self._settings.allowed()

    def find(self, assign: Assign) -> bool:
        """Return whether the program of an assignment is here. Raises `Unusable`."""
        program = assign.program
        if program is None:
            return True
        if any(of_program(program, self._settings.allowed())):
            raise Unusable("not-allowed")
        if program.signers and program.digest not in self._settings.pinned:
            self._check_signature(assign, program.digest)
        return self.parcels.folder(program.digest) is not None

    def prepare(self, digest: str) -> None:
        """Install the packages of a program that is here. Raises `Unusable` and OSError."""
        folder = self.parcels.folder(digest)
        if folder is None or self._environments is None:
            raise Unusable("gone")
        self._environments.build(folder)

    def collect(self, used: Collection[str], now_wall_s: float) -> None:
        """Keep parcels and environments within their limit; `used` are digests of parcels."""
        self.parcels.collect(used, now_wall_s)
        if self._environments is not None:
            self._environments.collect(set(self._keys(used)))

    def _keys(self, used: Collection[str]) -> Iterator[str]:
        """Yield the keys of the environments of parcels."""
        for folder in filter(None, map(self.parcels.folder, used)):
            with contextlib.suppress(FileNotFoundError):  # one that names no packages
                yield key_of(folder)

    def stop(self) -> None:
        """End what is being built."""
        if self._environments is not None:
            self._environments.stop()

    def launch(
        self, assign: Assign, work: Path, checkpoint: Path, gpu: int | None,
        inherited: Mapping[str, str], threads: int, folders: Mapping[str, Path], *, resume: bool,
    ) -> Launch:  # fmt: skip
        """Return how to start an assignment's program, which reads these `folders`.

        Raises `FleetError` when the program is not here, or does not take the job's parameters.
        """
        folder, program = self._program(assign)
        packages = self._packages(folder, program)
        python = sys.executable if packages is None else str(python_of(packages))
        out = work / "out"
        for path in (out, checkpoint):
            path.mkdir(parents=True, exist_ok=True)
        command = [
            *_by_python(program.command, python),
            *_parameters(assign, program),
            *(f"--{name}={folder}" for name, folder in sorted(folders.items())),
            f"--out-dir={out}",
            *([f"--checkpoint-dir={checkpoint}"] if program.resumable else []),
            *(["--resume"] if resume and program.resumable else []),
        ]
        environment = _environment(inherited, threads, packages)
        if self._settings.uses_sandbox():
            # The sandbox shows one GPU, whose number is 0 then.
            environment["CUDA_VISIBLE_DEVICES"] = "" if gpu is None else "0"
            reads = [*sandbox.interpreter(), folder, *folders.values()]
            writes = (out, checkpoint)
            reads += [] if packages is None else [packages]
            view = sandbox.View(folder, reads, writes, gpu, self._settings.network)
            return Launch(sandbox.sandboxed(command, view), environment, work)
        own = work / _WORK  # what it writes there does not reach the next job's
        shutil.copytree(folder, own, dirs_exist_ok=True)
        environment["CUDA_VISIBLE_DEVICES"] = "" if gpu is None else str(gpu)
        environment |= dict.fromkeys(("HOME", "USERPROFILE"), str(work))  # the latter on Windows
        return Launch(command, environment, own)

    def _packages(self, folder: Path, program: Program) -> Path | None:
        """Return the environment of a program; none: it runs with the agent's own packages."""
        if program.environment == "none":
            return None
        found = None if self._environments is None else self._environments.find(folder)
        if found is None:
            raise FleetError(f"the packages of {program.name} are not installed any more")
        return found

    def exit_code(self, code: int) -> int:
        """Return how a program ended, by the exit code of what was launched."""
        return sandbox.exit_code(code) if self._settings.uses_sandbox() else code

    def _program(self, assign: Assign) -> tuple[Path, Program]:
        digest = "" if assign.program is None else assign.program.digest
        folder = self.parcels.folder(digest)
        if folder is None:
            raise FleetError(f"the parcel {digest[:12]} is not here any more")
        return folder, read_program(folder, ())

    def _check_signature(self, assign: Assign, digest: str) -> None:
        """Find a signature that counts, of somebody whom the owner trusts. Raises `Unusable`."""
        refusal = Unusable("no-signature")
        for one in assign.signatures if self._verify is not None else ():
            if one.signer in self._settings.signed_by and self._verify is not None:
                try:
                    self._verify(one, assign.model, digest, assign.crl)
                except Unusable as error:
                    refusal = error
                else:
                    return
        raise refusal


def open_programs(
    settings: ProgramSettings, state: Path, identity: Path | None, clock: Clock,
    building: Callable[[Callable[[], None]], object],
) -> Programs:  # fmt: skip
    """Return the programs of an agent, in its state folder; see `Programs`.

    `identity` is the folder of its certificate: without one no signature counts. Raises OSError.
    """
    limit_bytes = settings.cache_bytes()
    environments = None
    if settings.allowed() is not None:
        environments = Environments(
            state / "environments", limit_bytes, clock, uses_sandbox=settings.uses_sandbox()
        )
    verify = None if identity is None else verifier(identity / CA_FILE, clock)
    parcels = Parcels(state / "programs", limit_bytes)
    return Programs(settings, parcels, verify, environments, building)


def metrics_line(out: Path) -> str | None:
    """Return what `metrics.json` in a program's output says as a trainer's line; none without it.

    Whoever reads the line checks it, as it checks all that a trainer prints. A link could lead to
    what the sandbox hides, and a pipe would never end: neither is read, and the line has none.
    """
    if not os.path.lexists(out / METRICS_FILE):
        return None
    try:
        with open(out / METRICS_FILE, "rb", opener=_open_plain) as file:
            metrics = json.loads(file.read(MAX_METRICS_BYTES))
    except (OSError, ValueError, RecursionError):
        metrics = None
    line, unread = (json.dumps({"event": "result", "metrics": one}) for one in (metrics, None))
    return line if len(line) <= MAX_LINE_CHARS else unread


def _open_plain(path: str, flags: int) -> int:
    """Open a regular file, and nothing else. Raises OSError."""
    for name in ("O_NOFOLLOW", "O_NONBLOCK"):  # Windows has neither
        flags |= getattr(os, name, 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    return descriptor


def _by_python(command: Sequence[str], python: str) -> list[str]:
    """Return a program's command with this interpreter in the place of `python`."""
    first, *rest = command
    return [python if first in _PYTHON else first, *rest]


def _parameters(assign: Assign, program: Program) -> list[str]:
    """Return the job's parameters, and the defaults of others, one argument each."""
    given = dict(assign.hyper)
    if "seed" in program.parameters:
        given.setdefault("seed", assign.seed)
    for key, message in check_hyper(given, program.hyper_schema(), program.name):
        raise BadMessage(f"parameters of {program.name}: {key}: {message}")
    for name, one in program.parameters.items():
        if "default" in one:
            given.setdefault(name, one["default"])
    words = [
        f"--{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in sorted(given.items())
    ]
    if any("\0" in word for word in words):
        raise BadMessage(f"parameters of {program.name}: one has a NUL in it")
    return words


def _environment(
    inherited: Mapping[str, str], threads: int, packages: Path | None
) -> dict[str, str]:
    kept = {name: value for name, value in inherited.items() if name.upper() in _ENVIRONMENT}
    if packages is not None:
        scripts = str(python_of(packages).parent)
        kept["PATH"] = os.pathsep.join(filter(None, [scripts, kept.get("PATH", "")]))
        kept["VIRTUAL_ENV"] = str(packages)
    return kept | {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the driver's numbers
        "HOME": sandbox.HOME,
        "OMP_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",  # on Windows, too
    }
