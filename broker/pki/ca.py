"""The fleet's private CA: a folder with its key, its certificate, the registry, and the CRL.

ECDSA on P-256 with SHA-256, certificates as in RFC 5280. Programs get certificates for clients, the
broker one for a server; none may sign others. Times are in seconds since the epoch. A certificate
is in the registry before anybody gets it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.errors import ConfigError
from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.pki import keyfiles
from broker.pki.identity import DAY_S
from broker.system.files import FolderLock

CA_DAYS: Final = 3650.0
DAYS: Final = 365.0
BACKDATED_S: Final = 3600.0  # clocks differ, and a small machine's starts behind
BROKER_NAME: Final = "fleet broker"  # with a space: no host's, no person's
CRL_FILE: Final = "crl.pem"
KEY_FILE: Final = "ca.key"
REGISTRY_FILE: Final = "registry.json"
KEEP_ENDED_S: Final = 365 * DAY_S
MAX_REGISTRY_BYTES: Final = 16 * 1024 * 1024
LOCK_WAIT_S: Final = 10.0
MAX_HELD: Final = 8  # of one name at once, from renewals whose answers were lost


@dataclass(frozen=True, slots=True)
class Issued:
    """One certificate that the CA issued; serial, fingerprint and key id are hexadecimal."""

    name: str
    serial: str
    fingerprint: str
    ends_s: float
    revoked_s: float | None = None
    key: str = ""

    def holds(self, now_s: float) -> bool:
        """Tell whether it is valid: neither revoked nor ended."""
        return self.revoked_s is None and now_s <= self.ends_s


class Authority:
    """The CA in a folder. Every method raises `ConfigError` or OSError when a file refuses."""

    def __init__(self, folder: Path) -> None:
        """Open the CA in `folder`."""
        self.folder = folder
        path = folder / KEY_FILE
        if not path.is_file():
            raise ConfigError(f"{folder}: there is no CA here; make one with `fleet init`")
        keyfiles.check_secret(path)
        self._key = certs.read_key(path)
        self.certificate = certs.read_certificate(folder / ids.CA_FILE)
        self.pem = certs.certificate_pem(self.certificate)

    @classmethod
    def create(cls, folder: Path, now_s: float) -> Self:
        """Make a CA. Raises `ConfigError` when there is one already."""
        if (folder / KEY_FILE).exists():
            raise ConfigError(f"{folder}: there is a CA already")
        keyfiles.private_folder(folder.parent)
        keyfiles.private_folder(folder)
        key = certs.new_key()
        # A name of its own: where two CAs are called alike, OpenSSL may try the wrong one.
        name = _named(f"fleet CA {secrets.token_hex(4)}")
        begins, ends = _moment(now_s - BACKDATED_S), _moment(now_s + CA_DAYS * DAY_S)
        builder = _builder(name, name, key.public_key(), begins, ends)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage(signs=True), True)
        certificate = builder.sign(key, hashes.SHA256())
        keyfiles.write(folder / ids.CA_FILE, certs.certificate_pem(certificate), keyfiles.PUBLIC)
        keyfiles.write(folder / KEY_FILE, certs.key_pem(key))
        made = cls(folder)
        made._write([], now_s)
        return made

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of the CA's certificate, 32 bytes."""
        return certs.fingerprint(self.certificate)

    def issue(
        self, public: ec.EllipticCurvePublicKey, name: str, now_s: float, *,
        days: float = DAYS, replace: bool = False,
    ) -> bytes:  # fmt: skip
        """Return a client's certificate (PEM) for `public`; `replace` revokes earlier ones."""
        ids.folder_name(name)
        made = self._sign(public, name, (), now_s, now_s + days * DAY_S)
        return self._record(made, name, now_s, replace=replace)

    def issue_broker(
        self, public: ec.EllipticCurvePublicKey, names: Sequence[str], now_s: float, *,
        node: bool = False,
    ) -> bytes:  # fmt: skip
        """Return a server's certificate (PEM) for DNS names and addresses; revoke earlier ones.

        The nodes of a cluster show it to each other, so a `node`'s is a client's as well.
        """
        made = self._sign(public, BROKER_NAME, names, now_s, now_s + DAYS * DAY_S, node=node)
        return self._record(made, BROKER_NAME, now_s, replace=True)

    def renew(self, request: bytes, name: str, now_s: float) -> bytes:
        """Return the next certificate (PEM) for a key that has a valid one of `name`.

        The earlier one stays valid: the answer may be lost.
        """
        public = public_key(request)
        with self.locked():
            issued = self.issued()
            held = _held(issued, name, now_s)
            if not any(one.key == _key_id(public) for one in held):
                raise ConfigError(f"{name} has no certificate of this key that holds")
            if len(held) >= MAX_HELD:
                raise ConfigError(f"{name} has {len(held)} certificates; take `fleet enroll`")
            certificate = self._sign(public, name, (), now_s, now_s + DAYS * DAY_S)
            self._write([*issued, _entry(certificate, name)], now_s)
        return certs.certificate_pem(certificate)

    def temporary(
        self, public: ec.EllipticCurvePublicKey, name: str, now_s: float, lasts_s: float, *,
        server: bool = False,
    ) -> bytes:  # fmt: skip
        """Return a certificate (PEM) for a moment, without a record."""
        servers = (name,) if server else ()
        return certs.certificate_pem(self._sign(public, name, servers, now_s, now_s + lasts_s))

    def revoke(self, name: str, now_s: float) -> list[Issued]:
        """Revoke every valid certificate of `name`; return them. The CRL is written anew."""
        with self.locked():
            issued = self.issued()
            ended = _held(issued, name, now_s)
            # Even if nothing ended: a crash may have come between the registry and the CRL.
            self._write(_revoked(issued, name, now_s), now_s)
        return ended

    def issued(self) -> list[Issued]:
        """Return what was issued and has not ended long ago, oldest first."""
        return issued_in(self.folder)

    def holding(self, name: str, now_s: float) -> Issued | None:
        """Return the newest valid certificate of `name`."""
        return next(reversed(_held(self.issued(), name, now_s)), None)

    def check_free(self, name: str, now_s: float, *, replace: bool) -> Issued | None:
        """Return the certificate that another would `replace`, or raise `ConfigError` for it."""
        old = self.holding(name, now_s)
        if old is not None and not replace:
            raise ConfigError(
                f"{name} has a certificate until {ids.day(old.ends_s)}; give it a new one "
                f"and revoke that with --replace, or first `fleet revoke {name}`"
            )
        return old

    def _record(
        self, certificate: x509.Certificate, name: str, now_s: float, *, replace: bool
    ) -> bytes:
        """Put a certificate into the registry and return it (PEM)."""
        with self.locked():
            self.check_free(name, now_s, replace=replace)
            kept = _revoked(self.issued(), name, now_s)
            self._write([*kept, _entry(certificate, name)], now_s)
        return certs.certificate_pem(certificate)

    def _sign(
        self, public: ec.EllipticCurvePublicKey, name: str, servers: Sequence[str],
        now_s: float, ends_s: float, *, node: bool = False,
    ) -> x509.Certificate:  # fmt: skip
        begins = _moment(max(now_s - BACKDATED_S, certs.validity_s(self.certificate)[0]))
        ends = min(_moment(ends_s), self.certificate.not_valid_after_utc)
        if ends <= begins:
            raise ConfigError(f"{self.folder}: the CA ended; make a new one with `fleet init`")
        builder = _builder(_named(name), self.certificate.subject, public, begins, ends)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_usage(signs=False), True)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
        )
        # A host's certificate must not do for a broker's, nor the other way round.
        uses = [ExtendedKeyUsageOID.SERVER_AUTH] if servers else []
        if node or not servers:
            uses.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), False)
        if servers:
            builder = builder.add_extension(_alternatives(servers), False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, issued: Sequence[Issued], now_s: float) -> None:
        kept = [one for one in issued if one.ends_s > now_s - KEEP_ENDED_S]
        text = json.dumps({"version": 1, "issued": [asdict(one) for one in kept]}, indent=1)
        keyfiles.write(self.folder / REGISTRY_FILE, text.encode() + b"\n")
        keyfiles.write(self.folder / CRL_FILE, self._crl(kept, now_s), keyfiles.PUBLIC)

    def _crl(self, issued: Sequence[Issued], now_s: float) -> bytes:
        # It ends with the CA: a broker whose CRL is past its next update lets nobody in.
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(_moment(min(now_s, certs.validity_s(self.certificate)[1] - 1)))
            .next_update(self.certificate.not_valid_after_utc)
            .add_extension(x509.CRLNumber(int(now_s * 1000)), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
        )
        for one in issued:
            if one.revoked_s is not None:
                entry = x509.RevokedCertificateBuilder().serial_number(int(one.serial, 16))
                builder = builder.add_revoked_certificate(
                    entry.revocation_date(_moment(one.revoked_s)).build()
                )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other programs from the CA's files; each needs them for milliseconds."""
        deadline_s = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                lock = FolderLock(self.folder, "program")
                break
            except ConfigError:
                if time.monotonic() > deadline_s:
                    raise ConfigError(
                        f"{self.folder}: another program holds the CA; try again"
                    ) from None
            time.sleep(0.02)
        try:
            yield
        finally:
            lock.release()


def issued_in(folder: Path) -> list[Issued]:
    """Return what the CA in a folder has issued, oldest first, without its key."""
    path = folder / REGISTRY_FILE
    try:
        rows = json.loads(keyfiles.read(path, MAX_REGISTRY_BYTES))["issued"]
        return [Issued(**row) for row in rows]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path}: is damaged; restore it from a backup of the CA") from None


def is_node(certificate: x509.Certificate) -> bool:
    """Tell whether a broker's certificate is that of a node of a cluster."""
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    return ExtendedKeyUsageOID.CLIENT_AUTH in uses


def alternative_names(certificate: x509.Certificate) -> list[str]:
    """Return the DNS names and addresses of a server's certificate, in its order."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(one.value) for one in found]


def describe(one: Issued) -> str:
    """Return a certificate in words: its serial number and its end."""
    return f"serial {one.serial}, until {ids.day(one.ends_s)}"


def _held(issued: Sequence[Issued], name: str, now_s: float) -> list[Issued]:
    return [one for one in issued if one.name == name and one.holds(now_s)]


def _revoked(issued: Sequence[Issued], name: str, now_s: float) -> list[Issued]:
    held = _held(issued, name, now_s)
    return [replace(one, revoked_s=now_s) if one in held else one for one in issued]


def _entry(certificate: x509.Certificate, name: str) -> Issued:
    return Issued(
        name,
        f"{certificate.serial_number:x}",
        certs.fingerprint(certificate).hex(),
        certs.validity_s(certificate)[1],
        key=_key_id(certificate.public_key()),
    )


def _key_id(public: CertificatePublicKeyTypes) -> str:
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(public.public_bytes(encoding, form)).hexdigest()


def public_key(request: bytes) -> ec.EllipticCurvePublicKey:
    """Return the key of a certificate request (PKCS #10). Raises `ConfigError`."""
    try:
        parsed = x509.load_pem_x509_csr(request)
        key = parsed.public_key() if parsed.is_signature_valid else None
    except Exception:  # noqa: BLE001 - whatever a stranger's bytes do to the parser
        key = None
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise ConfigError("the certificate request is none, or not of a key on P-256")


def _moment(wall_s: float) -> datetime:
    return datetime.fromtimestamp(int(wall_s), UTC)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey,
    begins: datetime, ends: datetime,
) -> x509.CertificateBuilder:  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
        **dict.fromkeys(unused, False),
    )


def _alternatives(names: Sequence[str]) -> x509.SubjectAlternativeName:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return x509.SubjectAlternativeName(found)
