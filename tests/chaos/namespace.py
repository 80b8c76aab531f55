"""A network of its own for one host of a campaign: its cable can be pulled."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import uuid
from typing import Final

# Set aside for documentation (RFC 5737), so nobody's; but some sandbox is in one of them itself.
_NETS: Final = ("198.51.100.", "203.0.113.", "192.0.2.")


class Namespace:
    """A Linux network namespace, joined to this one by a pair of virtual Ethernet devices.

    A proxy that stalls still acknowledges what it is sent. A cable that is pulled leaves both ends
    with a connection on which nothing is, and connects that nobody answers.
    """

    def __init__(self) -> None:
        """Make one, with two addresses that no other namespace has.

        Raises OSError where that is not permitted, or `ip` is missing.
        """
        name = uuid.uuid4().hex[:8]
        self.name = f"fleet-{name}"
        self._near, self._far = f"fl{name}n", f"fl{name}f"
        if shutil.which("ip") is None or os.name != "posix" or os.geteuid() != 0:
            raise OSError("needs root and iproute2")
        self.address, far = _unused()
        try:
            _ip("netns", "add", self.name)
            _ip("link", "add", self._near, "type", "veth", "peer", self._far, "netns", self.name)
            _ip("address", "add", f"{self.address}/30", "dev", self._near)
            _ip("link", "set", self._near, "up")
            _ip("-n", self.name, "address", "add", f"{far}/30", "dev", self._far)
            for device in (self._far, "lo"):
                _ip("-n", self.name, "link", "set", device, "up")
        except OSError:
            self.remove()
            raise

    @property
    def prefix(self) -> tuple[str, ...]:
        """What has a command run inside; it becomes that command, with the same process id."""
        return ("ip", "netns", "exec", self.name)

    def pull(self) -> None:
        """Nothing passes any more, and nobody is told."""
        _ip("link", "set", self._near, "down")

    def plug(self) -> None:
        _ip("link", "set", self._near, "up")

    def remove(self) -> None:
        for arguments in (("link", "del", self._near), ("netns", "del", self.name)):
            with contextlib.suppress(OSError):
                _ip(*arguments)


def _unused() -> tuple[str, str]:
    """Return the two addresses of a /30 net that is free; at random, as others choose meanwhile."""
    lines = _ip("-4", "-o", "address").splitlines()
    ours = [line for line in lines if ": fl" in line]
    for net in _NETS:
        if not any(net in line for line in lines if line not in ours):
            free = [base for base in range(0, 256, 4) if f" {net}{base + 1}/" not in "".join(ours)]
            base = random.SystemRandom().choice(free)
            return f"{net}{base + 1}", f"{net}{base + 2}"
    raise OSError("this machine is in every net that is set aside for documentation")


def _ip(*arguments: str) -> str:
    command = ["ip", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
