"""The check of a program's signatures, which the coordinator makes at a push and the agent anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from broker.clock import Clock
from broker.protocol.messages import ProgramSignature

# Takes a signature, the program's name and digest, and the revocation list in PEM, which may be
# empty. Raises `Unusable` unless the signature counts.
Verify = Callable[[ProgramSignature, str, str, str], None]


def verifier(ca: Path, clock: Clock) -> Verify:
    """Return what checks signatures by the CA's certificate file.

    It raises `ConfigError` and OSError where that cannot be used.
    """

    def verify(signature: ProgramSignature, name: str, digest: str, crl: str) -> None:
        # Not above: who checks none saves the memory.
        from broker.programs import signatures

        now_s = clock().wall_s
        signatures.check(signature, name, digest, ca.read_bytes(), crl.encode(), now_s)

    return verify
