"""scp of a file to this machine: what people carry a model home with who have nothing else.

OpenSSH as it comes, with a key and a configuration of its own; the login is in the time. Nothing of
this machine's own sshd is touched, nor of anybody's ~/.ssh.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.harness.brokers import free_port, listens
from tests.harness.waiting import wait_until

START_S: Final = 10.0
PRIVILEGES: Final = Path("/run/sshd")  # where Debian's sshd wants to be locked in


class Programs(NamedTuple):
    """Where OpenSSH's are."""

    sshd: str
    scp: str
    keygen: str


def find() -> Programs | None:
    """Where they are, if all of them are."""
    folders = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    found = [shutil.which(name, path=folders) for name in ("sshd", "scp", "ssh-keygen")]
    return Programs(*filter(None, found)) if all(found) else None


def seconds(programs: Programs, path: Path, folder: Path) -> float:
    """Copy a file into `folder`; return how long it took, from the command's start to its end."""
    return copied(programs, [programs.scp, "-q"], path, folder)


def copied(programs: Programs, tool: list[str], path: Path, folder: Path) -> float:
    """Copy a file or a folder by `scp` or `rsync`, to this machine; return how long it took."""
    options = ["-F", "none", "-i", str(folder / "key"), "-o", "StrictHostKeyChecking=no",
               "-o", f"UserKnownHostsFile={folder / 'known'}"]  # fmt: skip
    copy = folder / "copy"
    with _served(programs, folder) as port:
        if tool[0] == programs.scp:
            command = [*tool, *options, "-P", str(port)]
        else:
            command = [*tool, "-e", shlex.join(["ssh", *options, "-p", str(port)])]
        begun_s = time.monotonic()
        subprocess.run(
            [*command, str(path), f"{getpass.getuser()}@127.0.0.1:{copy}"], check=True, timeout=300
        )
        took_s = time.monotonic() - begun_s
    if copy.is_file():
        copy.unlink()
    return took_s


@contextlib.contextmanager
def _served(programs: Programs, folder: Path) -> Iterator[int]:
    """Have an sshd that lets nobody in but the key in `folder`."""
    for name in ("host", "key"):
        subprocess.run(
            [programs.keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    if not PRIVILEGES.exists():
        with contextlib.suppress(PermissionError):
            PRIVILEGES.mkdir()
    port, settings = free_port(), folder / "sshd_config"
    settings.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / 'host'}\nPidFile none\n"
        f"AuthorizedKeysFile {folder / 'key.pub'}\nPasswordAuthentication no\nStrictModes no\n"
        "PermitRootLogin yes\nSubsystem sftp internal-sftp\n"
    )
    process = subprocess.Popen(
        [programs.sshd, "-D", "-e", "-f", str(settings)], stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: listens(port), "sshd does not listen", START_S)
        yield port
    finally:
        process.terminate()
        process.wait(START_S)
