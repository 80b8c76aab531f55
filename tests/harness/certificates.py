"""A certificate authority for tests, of the shape that `fleet init` makes."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, as files."""

    certificate: x509.Certificate
    crt: Path
    key: Path


class Authority:
    """A CA of its own, in a folder of its own; writes what a broker's identity needs."""

    def __init__(self, folder: Path, name: str = "fleet CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._revoked: list[x509.Certificate] = []
        self._named: dict[str, Issued] = {}
        self.certificate = (
            self._builder(self.name, self._key.public_key(), -HOUR, 24 * HOUR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_CA_USAGE, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        (folder / "ca.crt").write_bytes(_pem(self.certificate))

    def issue(
        self,
        *names: str,
        file: str | None = None,
        server: bool = False,
        node: bool = False,
        begins: timedelta = -HOUR,
        ends: timedelta = HOUR,
    ) -> Issued:
        """Issue a certificate with these common names, good from `begins` to `ends` from now.

        A server's that is a `node` of a cluster is good for a client's as well.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH] if server else []
        usages += [ExtendedKeyUsageOID.CLIENT_AUTH] if node or not server else []
        builder = self._builder(subject, key.public_key(), begins, ends)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if server:
            addresses = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]
            builder = builder.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        stem = file or f"{names[0].replace(':', '-') if names else 'nameless'}"
        crt, path = self.folder / f"{stem}.crt", self.folder / f"{stem}.key"
        crt.write_bytes(_pem(certificate))
        path.write_bytes(key_pem(key))
        return Issued(certificate, crt, path)

    def named(self, name: str) -> Issued:
        """Return the one certificate of this name, issued when it is first asked for."""
        if name not in self._named:
            self._named[name] = self.issue(name)
        return self._named[name]

    def broker(self) -> Path:
        """Issue the broker's own certificate; return the folder, which is its identity."""
        self.issue("broker", file="broker", server=True)
        return self.folder

    def revoke(self, *issued: Issued, lasts: timedelta = HOUR) -> None:
        """Revoke certificates: write `crl.pem`."""
        self._revoked += [one.certificate for one in issued]
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(now - 2 * HOUR)
            .next_update(now + lasts)
        )
        for certificate in self._revoked:
            entry = x509.RevokedCertificateBuilder(certificate.serial_number, now)
            builder = builder.add_revoked_certificate(entry.build())
        signed = builder.sign(self._key, hashes.SHA256())
        written = self.folder / "crl.new"
        written.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        written.replace(self.folder / "crl.pem")

    def context(self, issued: Issued | None) -> ssl.SSLContext:
        """Return what a client needs that trusts this CA and shows `issued`."""
        made = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        if issued is not None:
            made.load_cert_chain(issued.crt, issued.key)
        return made

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, begins: timedelta, ends: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )


_CA_USAGE = x509.KeyUsage(
    digital_signature=True, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
    encipher_only=False, decipher_only=False,
)  # fmt: skip


def key_pem(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    """Return a key as a file has it."""
    how: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        how = serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
