"""The peers of `benchmarks.jobs`: what else runs a process per job, each set up as its docs advise.

Each module beside this one is a program for the interpreter of an environment that has that peer:

    PYTHON PEER.py [--processes] FOLDER SINGLE JOBS SLOTS PROGRAM…

It runs SINGLE jobs one at a time and JOBS at once on SLOTS slots of this machine, and prints a line
of JSON (`harness.py`): `starts_ms`, `ends_ms` and `rates`, as `benchmarks.jobs.Figures` has them.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
SLURM = ("slurmctld", "slurmd", "munged", "sbatch")


@dataclass(frozen=True)
class Peer:
    """A peer: the package that it is imported from, the programs that it needs besides.

    `most_jobs` at once and `most_single` ones are given to it: some take a second each. Where
    `in_python` is set, its jobs are Python functions, each in a process that is started for it.
    """

    name: str
    module: str
    package: str | None
    programs: tuple[str, ...] = ()
    most_jobs: int = 1000
    most_single: int = 50
    in_python: bool = False

    @property
    def script(self) -> list[str]:
        """Its program here."""
        return [str(_HERE / f"{self.module}.py"), *(["--processes"] if self.in_python else [])]

    def python(self, folder: Path) -> Path:
        """Return the interpreter that has it."""
        return folder / "bin" / "python"

    def missing(self, folder: Path, program: list[str]) -> str | None:
        """Return why it cannot be measured with a program, or none."""
        if self.in_python and not any(word.endswith(".py") for word in program):
            return "its jobs are Python functions: --child python"
        for needed in self.programs:
            # Debian's programs of Slurm have this ending where its alternatives are not set up.
            if not any(map(shutil.which, (needed, f"{needed}-wlm"))):
                return f"{needed} is not installed"
        if self.package is None:
            return None
        asked = [str(self.python(folder)), "-c", f"import {self.package}"]
        try:
            done = subprocess.run(asked, capture_output=True, check=False)
        except OSError as error:
            return f"{asked[0]}: {error.strerror}"
        return None if done.returncode == 0 else f"{self.package} is not in {folder}"


PEERS = (
    Peer("jobd", "jobd_peer", "jobd", most_jobs=60),
    Peer("HyperQueue", "hyperqueue_peer", "hyperqueue", most_single=20),
    Peer("Dask distributed", "dask_peer", "distributed"),
    Peer("Ray", "ray_peer", "ray"),
    Peer("Dask with a process pool", "dask_peer", "distributed", most_jobs=60, in_python=True),
    Peer("Ray with max_calls=1", "ray_peer", "ray", most_jobs=60, in_python=True),
    Peer("Slurm", "slurm_peer", None, SLURM, most_jobs=60, most_single=10),
)
