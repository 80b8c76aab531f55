"""A private CA for tests: certificates by common name, made at once and valid for a day."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass
class Authority:
    """A CA whose files are in `folder`: ca.crt, and NAME.crt and NAME.key of whom it names."""

    folder: Path
    key: ec.EllipticCurvePrivateKey = field(init=False)
    certificate: x509.Certificate = field(init=False)
    issued: dict[str, x509.Certificate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = _name("test CA")
        self.certificate = (
            _builder(subject, subject, self.key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        (self.folder / "ca.crt").write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def issue(self, name: str, file: str | None = None) -> tuple[Path, Path]:
        """Return the files of a certificate with this common name, and of its key."""
        file = (file or name).replace(":", "_")
        paths = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        if paths[0].exists():
            return paths
        key = ec.generate_private_key(ec.SECP256R1())
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        local = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        self.issued[name] = (
            _builder(_name(name), self.certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            .add_extension(x509.SubjectAlternativeName([local]), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        paths[0].write_bytes(self.issued[name].public_bytes(Encoding.PEM))
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        paths[1].touch(0o600)
        paths[1].write_bytes(text)
        return paths

    def revoke(self, *names: str) -> None:
        """Write crl.pem, with the certificates of these names in it."""
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now - timedelta(minutes=5))
            .next_update(now + timedelta(days=1))
        )
        for name in names:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(self.issued[name].serial_number)
                .revocation_date(now - timedelta(minutes=5))
                .build()
            )
        text = builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)
        (self.folder / "crl.pem").write_bytes(text)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
    )
