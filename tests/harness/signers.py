"""A CA of `fleet init`, the operators that it knows, and its revocation list."""

from __future__ import annotations

from pathlib import Path

from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.pki.ca import CRL_FILE, Authority
from broker.programs.signatures import check
from broker.protocol.messages import ProgramSignature

NOW_S = 1.8e9
DIGEST = "3f" * 32


class Fleet:
    """A CA, and the identities that it issues."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.create(folder / "ca", NOW_S)

    def identity(self, name: str, days: float = 365.0) -> Path:
        """The folder of an identity that begins an hour before `NOW_S`."""
        key = certs.new_key()
        made = self.authority.issue(key.public_key(), name, NOW_S, days=days)
        folder = self.folder / ids.folder_name(name)
        ids.write_identity(folder, self.authority.pem, made, certs.key_pem(key))
        return folder

    @property
    def crl(self) -> bytes:
        return (self.folder / "ca" / CRL_FILE).read_bytes()

    def check(
        self, signature: ProgramSignature, name: str = "vision", digest: str = DIGEST,
        crl: bytes | None = None, now_s: float = NOW_S,
    ) -> str:  # fmt: skip
        crl = self.crl if crl is None else crl
        return check(signature, name, digest, self.authority.pem, crl, now_s)
