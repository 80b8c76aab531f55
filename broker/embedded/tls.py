"""Who the broker is and whom it trusts: its certificate, its CA, and who was revoked.

The files are read again when they change. Revocation is checked here and not by OpenSSL, which
would refuse everybody once a list is older than it says, and never asks about those inside.
"""

from __future__ import annotations

import logging
import ssl
from asyncio import sslproto
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from broker.errors import ConfigError, plain
from broker.protocol.acl import Principal

log = logging.getLogger("fleet.broker")

Names = tuple[str, ...]
Serial = tuple[bytes, int]  # of which issuer, and the number

CA: Final = "ca.crt"
CERTIFICATE: Final = "broker.crt"
KEY: Final = "broker.key"
REVOKED: Final = "crl.pem"
TLS_FILES: Final[Names] = (CA, CERTIFICATE, KEY)
CRL_FILES: Final[Names] = (REVOKED,)
REMEDY: Final = "'fleet init' makes all of them"

# Each connection has a buffer of this size: asyncio's 256 KiB take 260 MiB at 1,000 hosts.
sslproto.SSLProtocol.max_size = 32 * 1024


@dataclass(frozen=True, slots=True)
class Guest:
    """Whose certificate it is, and what can end it."""

    principal: Principal
    serial: Serial
    not_after: datetime


class Identity:
    """A folder of certificates. Raises `ConfigError` when it is not usable at the start."""

    def __init__(self, folder: Path) -> None:
        """Read everything."""
        self._folder = folder
        self._stamps = {names: self._stamp(names) for names in (TLS_FILES, CRL_FILES)}
        self.context = self._context()
        self._revoked: frozenset[Serial] = frozenset()
        if (folder / REVOKED).exists():
            self._revoked = self._read_revoked()

    def refresh(self) -> None:
        """Read again what has changed. What cannot be used is told, and the old stays in force."""
        if self._is_changed(TLS_FILES):
            try:
                self.context = self._context()
                log.info("%s: new certificates are in use", self._folder)
            except ConfigError as error:
                log.error("%s; the old certificates stay in use", error)
        if self._is_changed(CRL_FILES):
            try:
                before, self._revoked = self._revoked, self._read_revoked()
                if self._revoked != before:
                    log.info("%s: certificates revoked: %d", self._folder, len(self._revoked))
            except ConfigError as error:
                log.error("%s; those revoked before stay so", error)

    def _is_changed(self, names: Names) -> bool:
        before, self._stamps[names] = self._stamps[names], self._stamp(names)
        return self._stamps[names] != before

    def _stamp(self, names: Names) -> list[tuple[int, int, int] | None]:
        return [_stamp(self._folder / name) for name in names]

    def guest(self, certificate_der: bytes) -> Guest:
        """Return whose certificate it is, one that TLS has found good.

        Raises `ConfigError` when the name in it is nobody's.
        """
        certificate = x509.load_der_x509_certificate(certificate_der)
        names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        if len(names) != 1:
            raise ConfigError(f"the certificate has {len(names)} common names, not one")
        serial = (certificate.issuer.public_bytes(), certificate.serial_number)
        principal = Principal.parse(str(names[0].value))
        return Guest(principal, serial, certificate.not_valid_after_utc)

    def is_revoked(self, guest: Guest) -> bool:
        """Tell whether the certificate was revoked."""
        return guest.serial in self._revoked

    def _context(self) -> ssl.SSLContext:
        for name in TLS_FILES:
            if not (self._folder / name).is_file():
                raise ConfigError(f"--identity {self._folder}: {name} is missing; {REMEDY}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        # Every connection shows its certificate: nothing is resumed, nothing renegotiated.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        try:
            context.load_verify_locations(self._folder / CA)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self._folder / CA}: no certificate in it: {plain(error)}"
            ) from None
        try:
            # With a password, or OpenSSL would ask for that of an encrypted key and wait.
            context.load_cert_chain(self._folder / CERTIFICATE, self._folder / KEY, password="")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self._folder}: {CERTIFICATE} and {KEY} do not go together, or cannot be read: "
                f"{error}; the key must not be encrypted"
            ) from None
        return context

    def _read_revoked(self) -> frozenset[Serial]:
        """Return the revoked certificates. The list has to be signed by a CA in `ca.crt`."""
        path = self._folder / REVOKED
        try:
            revoked = x509.load_pem_x509_crl(path.read_bytes())
            authorities = x509.load_pem_x509_certificates((self._folder / CA).read_bytes())
            issuer = revoked.issuer.public_bytes()
            serials = frozenset((issuer, one.serial_number) for one in revoked)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{path}: cannot be read: {plain(error)}; 'fleet revoke' writes it"
            ) from None
        if not any(_signed(revoked, one) for one in authorities):
            raise ConfigError(f"{path}: not signed by the CA in {CA}; 'fleet revoke' writes it")
        return serials


def _signed(revoked: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    if revoked.issuer != authority.subject:
        return False
    try:
        # A key that cannot sign such a list raises TypeError here.
        return revoked.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except (InvalidSignature, UnsupportedAlgorithm, TypeError):
        return False


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when the file does; none for one that is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
