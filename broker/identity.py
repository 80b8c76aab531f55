"""Who a program is: a folder with `ca.crt`, `client.crt` and `client.key` (X.509, RFC 5280).

The common name of the certificate is the identity (`broker.acl.Principal`). The fleet's own CA is
the only one that is trusted, TLS is 1.2 or newer, and the broker's name is always checked.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from broker import private
from broker.acl import Principal, Role
from broker.address import parse_address
from broker.errors import ConfigError
from broker.names import is_plain

CA_FILE: Final = "ca.crt"
CERTIFICATE_FILE: Final = "client.crt"
KEY_FILE: Final = "client.key"
BROKER_FILE: Final = "broker.url"
MAX_FILE_BYTES: Final = 64 * 1024
DAY_S: Final = 86_400.0
_REMEDY: Final = "get another with `fleet enroll`, or `fleet init` on the CA's machine"


def folder_name(name: str) -> str:
    """Return what the folder of an identity is called, on every system.

    Raises `ConfigError` for a name that is nobody's, or that no folder can bear on Windows.
    """
    Principal.parse(name)
    if not is_plain(name.replace(":", "@")):
        raise ConfigError(f"{name!r} cannot be the name of a folder on Windows; choose another")
    return name.replace(":", "@")  # which no host can have in its name


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity that was found whole: name, folder, and when it begins and ends (epoch, s)."""

    folder: Path
    name: str
    begins_s: float
    ends_s: float

    def context(self) -> ssl.SSLContext:
        """Return a context for a connection to the broker, from the files as they are now.

        Raises OSError, which `ssl.SSLError` is, when they cannot be read or do not fit together.
        """
        try:
            made = ssl.create_default_context(
                ssl.Purpose.SERVER_AUTH, cafile=str(self.folder / CA_FILE)
            )
            made.minimum_version = ssl.TLSVersion.TLSv1_2
            made.load_cert_chain(self.folder / CERTIFICATE_FILE, self.folder / KEY_FILE)
        except OSError as error:
            why = error.strerror or error
            raise OSError(f"the identity in {self.folder} cannot be used: {why}") from None
        return made


def load_identity(folder: Path, now_s: float) -> Identity:
    """Return the identity in `folder`; `now_s` is the time since the epoch, in seconds.

    Raises `ConfigError` that names the file and the remedy: it is missing, others may read the key,
    the parts do not fit together, its time is not now, or its name is nobody's.
    """
    path = folder / CERTIFICATE_FILE
    certificate = read_certificate(path)
    authority = read_certificate(folder / CA_FILE)
    private.check_secret(folder / KEY_FILE)
    key = read_key(folder / KEY_FILE)
    check_parts(str(folder), authority, certificate, key, now_s)
    begins_s, ends_s = validity_s(certificate)
    name = common_name(certificate)
    try:
        Principal.parse(name)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return Identity(folder, name, begins_s, ends_s)


def check_parts(
    source: str,
    authority: x509.Certificate,
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey | None,
    now_s: float,
) -> None:
    """Raise `ConfigError` that names `source` unless the parts belong together and hold now."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        raise ConfigError(f"{source}: the certificate is not of this CA; {_REMEDY}") from None
    if key is not None and key.public_key() != certificate.public_key():
        raise ConfigError(f"{source}: the key does not belong to the certificate; {_REMEDY}")
    begins_s, ends_s = validity_s(certificate)
    if now_s > ends_s:
        raise ConfigError(f"{source}: the certificate ended on {day(ends_s)}; {_REMEDY}")
    if now_s < begins_s:
        raise ConfigError(
            f"{source}: the certificate begins on {day(begins_s)}; is this machine's clock right?"
        )


def find_identity(folder: Path, accepts: frozenset[str], name: str | None = None) -> Path | None:
    """Return the one folder in `folder` whose name's role is in `accepts`; none without one.

    `name` is the one to take, if it is known. Where there are several, the only operator's is
    taken: whoever may give orders may look as well. Raises `ConfigError` when that settles nothing.
    """
    if name is not None:
        wanted = folder / folder_name(name)
        return wanted if wanted.is_dir() else None
    found = sorted(
        path
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (path / CERTIFICATE_FILE).is_file() and _role(path.name) in accepts
    )
    operators = [path for path in found if _role(path.name) == Role.OPERATOR]
    if len(operators) == 1:
        return operators[0]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ConfigError(f"{folder}: there are several identities ({names}); choose by --identity")
    return found[0] if found else None


def broker_of(folder: Path) -> str | None:
    """Return the address of the broker that an identity is for, if its folder says.

    Raises `ConfigError` that names the file for what is none.
    """
    path = folder / BROKER_FILE
    if not path.is_file():
        return None
    url = private.read(path, MAX_FILE_BYTES).decode("utf-8", "replace").strip()
    if not parse_address(url, str(path)).tls:
        raise ConfigError(f"{path}: is not an address with TLS; write mqtts://HOST:PORT")
    return url


def _role(name: str) -> str | None:
    try:
        return Principal.parse(name.replace("@", ":")).role
    except ConfigError:
        return None


def read_certificate(path: Path) -> x509.Certificate:
    """Return the certificate in a file. Raises `ConfigError` that names it."""
    return parse_certificate(private.read(path, MAX_FILE_BYTES), str(path))


def parse_certificate(data: bytes, source: str) -> x509.Certificate:
    """Return a certificate in PEM. Raises `ConfigError` that names `source`."""
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError:
        raise ConfigError(f"{source}: is not a certificate; {_REMEDY}") from None


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the private key in a file. Raises `ConfigError` that names it."""
    return parse_key(private.read(path, MAX_FILE_BYTES), str(path))


def parse_key(data: bytes, source: str) -> ec.EllipticCurvePrivateKey:
    """Return a private key in PEM. Raises `ConfigError` that names `source`."""
    try:
        key = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{source}: is not a private key of the fleet; {_REMEDY}")
    return key


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key on P-256, which every TLS library knows."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PEM, without a passphrase: programs start by themselves."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
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


def day(wall_s: float) -> str:
    """Return seconds since the epoch as a date, in UTC."""
    return datetime.fromtimestamp(wall_s, UTC).date().isoformat()


def write_identity(
    folder: Path, authority: bytes, certificate: bytes, key: bytes, broker: str | None = None
) -> None:
    """Put an identity into a folder, with the address of the broker that it is for. Raises OSError.

    The key comes first: a certificate that is there has its key.
    """
    private.private_folder(folder.parent)
    private.private_folder(folder)
    private.write(folder / KEY_FILE, key)
    private.write(folder / CA_FILE, authority, private.PUBLIC)
    if broker is not None:
        private.write(folder / BROKER_FILE, f"{broker}\n".encode(), private.PUBLIC)
    private.write(folder / CERTIFICATE_FILE, certificate, private.PUBLIC)
