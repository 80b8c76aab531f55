"""Who a program is: a folder with `ca.crt`, `client.crt` and `client.key` (X.509, RFC 5280).

The common name of the certificate is the identity (`broker.protocol.acl.Principal`). Only the
fleet's own CA is trusted, TLS is 1.2 or newer, and the broker's name is always checked.

An identity is checked without `cryptography`, which takes 11 MiB: in a TLS handshake in memory,
with ourselves. What makes certificates is in `broker.pki.certificates`.
"""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from broker.errors import ConfigError
from broker.file_names import is_plain
from broker.pki import keyfiles
from broker.protocol.acl import Principal
from broker.protocol.topic_table import Role
from broker.system.address import parse_address

CA_FILE: Final = "ca.crt"
CERTIFICATE_FILE: Final = "client.crt"
KEY_FILE: Final = "client.key"
BROKER_FILE: Final = "broker.url"
MAX_FILE_BYTES: Final = 64 * 1024
DAY_S: Final = 86_400.0
_NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME
_INVALID_PURPOSE: Final = 26  # X509_V_ERR_INVALID_PURPOSE
REMEDY: Final = "get another with `fleet enroll`, or `fleet init` on the CA's machine"
HOW_TO_GET: Final = "docs/how-to/identity.md tells how to get one"


def folder_name(name: str) -> str:
    """Return the name of an identity's folder; raises `ConfigError` for a name that is nobody's."""
    Principal.parse(name)
    if not is_plain(name.replace(":", "@")):
        raise ConfigError(f"{name!r} cannot be the name of a folder on Windows; choose another")
    return name.replace(":", "@")  # which no host can have in its name


@dataclass(frozen=True, slots=True)
class Identity:
    """A complete identity: folder, name, and when it begins and ends (since the epoch)."""

    folder: Path
    name: str
    begins_s: float
    ends_s: float

    def context(self) -> ssl.SSLContext:
        """Return a context for a connection to the broker, from the files as they are now."""
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

    def mark(self) -> object:
        """Return what changes when the certificate is replaced."""
        try:
            found = (self.folder / CERTIFICATE_FILE).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns


def load_identity(folder: Path, now_s: float) -> Identity:
    """Return the identity in `folder`; raises `ConfigError` unless it is complete and valid now."""
    return load_with(folder, folder / CERTIFICATE_FILE, now_s)


def load_with(folder: Path, path: Path, now_s: float) -> Identity:
    """Return the identity in `folder` with the certificate at `path`, as `load_identity` does."""
    if not path.exists() and (folder / "broker.crt").exists():
        others = folder.parent / "identities"
        raise ConfigError(f"{folder}: that is the broker's folder; name one of {others}/NAME")
    for certificate in (path, folder / CA_FILE):
        _check_certificate(certificate)
    keyfiles.check_secret(folder / KEY_FILE)
    keyfiles.read(folder / KEY_FILE, MAX_FILE_BYTES, HOW_TO_GET)
    shown = _show(folder, path)
    begins_s, ends_s = (ssl.cert_time_to_seconds(shown[key]) for key in ("notBefore", "notAfter"))
    check_time(str(folder), begins_s, ends_s, now_s)
    names = [value for part in shown["subject"] for key, value in part if key == "commonName"]
    name = names[0] if len(names) == 1 else ""
    try:
        Principal.parse(name)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return Identity(folder, name, begins_s, ends_s)


def check_time(source: str, begins_s: float, ends_s: float, now_s: float) -> None:
    """Raise `ConfigError` that names `source` unless a certificate's time (epoch, s) is now."""
    if now_s > ends_s:
        raise ConfigError(f"{source}: the certificate ended on {day(ends_s)}; {REMEDY}")
    if now_s < begins_s:
        raise ConfigError(
            f"{source}: the certificate begins on {day(begins_s)}; is this machine's clock right?"
        )


def _check_certificate(path: Path) -> None:
    try:
        text = keyfiles.read(path, MAX_FILE_BYTES, HOW_TO_GET).decode("ascii")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"{path}: is not a certificate; {REMEDY}") from None


def _show(folder: Path, path: Path) -> dict[str, Any]:
    """Return a certificate's fields after a server has verified it, in a handshake in memory."""
    host = _context(ssl.PROTOCOL_TLS_CLIENT, folder, path)
    host.check_hostname = False
    host.verify_mode = ssl.CERT_NONE  # the server is ourselves
    judge = _context(ssl.PROTOCOL_TLS_SERVER, folder, path)
    judge.load_verify_locations(folder / CA_FILE)
    judge.verify_mode = ssl.CERT_REQUIRED
    judge.verify_flags |= _NO_CHECK_TIME  # which is `check_time`'s, and by our clock
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = host.wrap_bio(back, there)
    judges = judge.wrap_bio(there, back, server_side=True)
    try:
        for side in (asks, judges) * 3:  # one more than a retry needs
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
        return judges.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == _INVALID_PURPOSE:
            raise ConfigError(f"{path}: is not a client's certificate; {REMEDY}") from None
        raise ConfigError(f"{folder}: the certificate is not of this CA; {REMEDY}") from None
    except ssl.SSLError as error:
        raise ConfigError(f"{folder}: cannot be used for TLS: {error.reason}; {REMEDY}") from None


def _context(protocol: int, folder: Path, path: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(protocol)
    key = folder / KEY_FILE
    try:
        made.load_cert_chain(path, key, password="")  # or OpenSSL would ask at the terminal
    except ssl.SSLError as error:
        if error.reason in {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"}:
            why = "the key does not belong to the certificate"
            raise ConfigError(f"{folder}: {why}; {REMEDY}") from None
        raise ConfigError(f"{key}: is not a private key of the fleet; {REMEDY}") from None
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read: {error.strerror}") from None
    return made


def find_identity(folder: Path, accepts: frozenset[str], name: str | None = None) -> Path | None:
    """Return the one folder in `folder` of that `name`, or of a role in `accepts`; none without.

    Of several, the only operator's is taken. Raises `ConfigError` when that leaves several.
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
    """Return the address of the broker that an identity is for, if its folder has one."""
    path = folder / BROKER_FILE
    if not path.is_file():
        return None
    url = keyfiles.read(path, MAX_FILE_BYTES).decode("utf-8", "replace").strip()
    if not parse_address(url, str(path)).tls:
        raise ConfigError(f"{path}: is not an address with TLS; write mqtts://HOST:PORT")
    return url


def _role(name: str) -> str | None:
    try:
        return Principal.parse(name.replace("@", ":")).role
    except ConfigError:
        return None


def day(wall_s: float) -> str:
    """Return seconds since the epoch as a date, by this machine's clock."""
    return datetime.fromtimestamp(wall_s, UTC).astimezone().date().isoformat()


def write_identity(
    folder: Path, authority: bytes, certificate: bytes, key: bytes, broker: str | None = None
) -> None:
    """Put an identity into a folder; its certificate last, so that it is complete then."""
    keyfiles.private_folder(folder.parent)
    keyfiles.private_folder(folder)
    keyfiles.write(folder / KEY_FILE, key)
    keyfiles.write(folder / CA_FILE, authority, keyfiles.PUBLIC)
    if broker is not None:
        keyfiles.write(folder / BROKER_FILE, f"{broker}\n".encode(), keyfiles.PUBLIC)
    keyfiles.write(folder / CERTIFICATE_FILE, certificate, keyfiles.PUBLIC)
