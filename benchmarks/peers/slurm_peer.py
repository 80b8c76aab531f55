"""Slurm: munged, slurmctld and slurmd of one node on loopback, with a configuration of their own.

A job is submitted by `sbatch` and asked for by `squeue`; all at once is a job array, as its guide
to high throughput advises, which the tuning follows as well. Root runs it, without cgroups. The
programs may lie elsewhere than in /usr: what they need is then found beside them.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import Task, measure, task

PATIENCE_S = 30.0
MOST_S = 120.0
CONFIGURATION = """
ClusterName=bench
SlurmctldHost={node}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,default_queue_depth=2000
MaxJobCount=20000
MinJobAge=10
NodeName={node} NodeAddr=127.0.0.1 CPUs={slots} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def program(*names: str) -> str:
    """Return the path of a program; Debian's bear the ending `-wlm`."""
    for name in names:
        if (found := shutil.which(name)) is not None:
            return found
    raise FileNotFoundError(names[0])


def free_ports() -> list[int]:
    """Return two ports that nobody listens on, and that no connection is given by chance."""
    found: list[int] = []
    while len(found) < 2:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found += [port] if port not in found else []
    return found


@contextlib.contextmanager
def running(wanted: Task) -> Iterator[None]:
    """Run the three daemons until a job can be given to the node."""
    folder = wanted.folder
    for name in ("state", "spool"):
        (folder / name).mkdir()
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    daemon, stepd = program("slurmd", "slurmd-wlm"), program("slurmstepd", "slurmstepd-wlm")
    (plugins,) = Path(daemon).resolve().parents[1].glob("lib/*/slurm-wlm")
    text = CONFIGURATION.format(
        node=socket.gethostname(), folder=folder, plugins=plugins, slots=wanted.slots,
        ports=free_ports(),
    )  # fmt: skip
    configuration = folder / "slurm.conf"
    configuration.write_text(text.lstrip())
    os.environ["SLURM_CONF"] = str(configuration)
    os.environ["LD_LIBRARY_PATH"] = f"{plugins.parent}:{plugins}"
    munged = [
        program("munged"), "--foreground", "--force", f"--socket={folder}/munge.socket",
        f"--key-file={key}", f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
        f"--seed-file={folder}/munged.seed",
    ]  # fmt: skip
    programs: list[subprocess.Popen[bytes]] = []
    log = (folder / "slurm.log").open("wb")
    try:
        for command in (
            munged,
            [program("slurmctld", "slurmctld-wlm"), "-D", "-f", str(configuration)],
            [daemon, "-D", "-d", stepd, "-f", str(configuration)],
        ):
            programs.append(subprocess.Popen(command, stdout=log, stderr=log))
            time.sleep(0.5)  # each wants the one before
        deadline_s = time.monotonic() + PATIENCE_S
        while "idle" not in _ask("sinfo", "-h", "-o", "%T"):
            if time.monotonic() > deadline_s:
                raise TimeoutError((folder / "slurm.log").read_text()[-2000:])
            time.sleep(0.2)
        yield
    finally:
        for one in reversed(programs):
            one.kill()
            one.wait()
        log.close()


def _ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def submit(wanted: Task, script: str, *options: str) -> str:
    """Submit a script; return the job's id."""
    batch = ["sbatch", "--parsable", "--output=/dev/null", "--ntasks=1", *options]
    done = subprocess.run(
        batch, input=f"#!/bin/sh\n{script}\n", capture_output=True, text=True, check=True,
        cwd=wanted.folder,
    )  # fmt: skip
    return done.stdout.strip()


def wait(job_id: str) -> None:
    """Wait until the queue does not have the job any more."""
    deadline_s = time.monotonic() + MOST_S
    while _ask("squeue", "-h", "-t", "PD,R,CG", "-j", job_id).strip():
        if time.monotonic() > deadline_s:
            _ask("scancel", job_id)
            return
        time.sleep(0.01)


def main() -> None:
    """Measure."""
    wanted = task()

    def many(commands: Sequence[Sequence[str]]) -> None:
        if not commands:
            return
        line = " ".join(commands[0]).replace(
            "--seed=10000", "--seed=$((10000 + SLURM_ARRAY_TASK_ID))"
        )
        wait(submit(wanted, f"exec {line}", f"--array=0-{len(commands) - 1}"))

    with running(wanted):
        measure(wanted, lambda command: wait(submit(wanted, "exec " + " ".join(command))), many)


if __name__ == "__main__":
    main()
