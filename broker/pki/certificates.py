"""Certificates and keys themselves (X.509, RFC 5280): read, made, compared.

Who only connects does without `cryptography`, which takes 11 MiB (`broker.pki.identity`).
"""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from broker.errors import ConfigError
from broker.pki import keyfiles
from broker.pki.identity import MAX_FILE_BYTES, REMEDY, check_time


def check_parts(
    source: str,
    authority: x509.Certificate,
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey | None,
    now_s: float,
) -> None:
    """Raise `ConfigError` unless the parts belong together and are valid now."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        raise ConfigError(f"{source}: the certificate is not of this CA; {REMEDY}") from None
    if key is not None and key.public_key() != certificate.public_key():
        raise ConfigError(f"{source}: the key does not belong to the certificate; {REMEDY}")
    check_time(source, *validity_s(certificate), now_s)


def read_certificate(path: Path) -> x509.Certificate:
    """Return the certificate in a file. Raises `ConfigError` that names it."""
    return parse_certificate(keyfiles.read(path, MAX_FILE_BYTES), str(path))


def parse_certificate(data: bytes, source: str) -> x509.Certificate:
    """Return a certificate in PEM. Raises `ConfigError` that names `source`."""
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError:
        raise ConfigError(f"{source}: is not a certificate; {REMEDY}") from None


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the private key in a file. Raises `ConfigError` that names it."""
    return parse_key(keyfiles.read(path, MAX_FILE_BYTES), str(path))


def parse_key(data: bytes, source: str) -> ec.EllipticCurvePrivateKey:
    """Return a private key in PEM. Raises `ConfigError` that names `source`."""
    try:
        key = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{source}: is not a private key of the fleet; {REMEDY}")
    return key


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key on P-256, which every TLS library knows."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PEM, without a passphrase: programs start by themselves."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def request_pem(key: ec.EllipticCurvePrivateKey, name: str) -> bytes:
    """Return a certificate signing request as PEM (PKCS #10, RFC 2986)."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def common_name(certificate: x509.Certificate) -> str:
    """Return the common name of a certificate; empty unless it has exactly one."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def fingerprint(certificate: x509.Certificate) -> bytes:
    """Return the SHA-256 of a certificate, 32 bytes."""
    return certificate.fingerprint(hashes.SHA256())


def validity_s(certificate: x509.Certificate) -> tuple[float, float]:
    """Return when a certificate begins and ends, in seconds since the epoch."""
    return (
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
    )
