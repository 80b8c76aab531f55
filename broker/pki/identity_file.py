"""An identity as one file, for its host: JSON with certificates, key and address, but no path."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from broker.errors import ConfigError, plain
from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.pki import keyfiles
from broker.system.address import parse_addresses

VERSION: Final = 1
MAX_BYTES: Final = 64 * 1024
_TAKEN: Final = "another identity is there; take --replace, or another -o DIR"


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a host needs: its name, the broker's address, and three files in PEM."""

    name: str
    broker: str
    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)
    v: int = VERSION

    def encode(self) -> bytes:
        """Return the file's content, which is secret."""
        return _BUNDLE.dump_json(self) + b"\n"

    def document(self) -> dict[str, Any]:
        """Return everything that is not secret."""
        found: dict[str, Any] = _BUNDLE.dump_python(self, mode="json", exclude={"key"})
        return found


_BUNDLE: Final = TypeAdapter(Bundle)


def read_bundle(path: Path, now_s: float) -> Bundle:
    """Return the bundle in a file. Raises `ConfigError` that names it and what is wrong."""
    return parse_bundle(keyfiles.read(path, MAX_BYTES), str(path), now_s)


def parse_bundle(data: bytes, source: str, now_s: float) -> Bundle:
    """Return a bundle whose parts belong together and are valid now, or raise `ConfigError`."""
    try:
        told = _BUNDLE.validate_json(data)
    except ValidationError:
        raise ConfigError(f"{source}: is not a file of `fleet enroll`") from None
    if told.v != VERSION:
        raise ConfigError(f"{source}: was made by another version of the fleet; update this one")
    authority = certs.parse_certificate(told.ca, f"{source}: ca")
    certificate = certs.parse_certificate(told.certificate, f"{source}: certificate")
    key = certs.parse_key(told.key, f"{source}: key")
    certs.check_parts(source, authority, certificate, key, now_s)
    if certs.common_name(certificate) != told.name:
        raise ConfigError(f"{source}: name: the certificate is somebody else's")
    try:
        ids.folder_name(told.name)
    except ConfigError as error:
        raise ConfigError(f"{source}: name: {error}") from None
    if not parse_addresses(told.broker, f"{source}: broker")[0].tls:
        raise ConfigError(f"{source}: broker: is not an address with TLS, mqtts://HOST:PORT")
    # What is written is what was understood: there may be more in a PEM file than one reads.
    return replace(
        told,
        ca=certs.certificate_pem(authority),
        certificate=certs.certificate_pem(certificate),
        key=certs.key_pem(key),
    )


def check_place(folder: Path, *, replace: bool = False) -> None:
    """Raise `ConfigError` unless a new identity can be written to `folder`; change nothing."""
    if (folder / ids.CERTIFICATE_FILE).exists() and not replace:
        raise ConfigError(f"{folder}: {_TAKEN}")
    there = folder.exists()
    probe = folder / ".room"
    try:
        keyfiles.private_folder(folder.parent)
        keyfiles.private_folder(folder)
        try:
            keyfiles.write(probe, bytes(MAX_BYTES))
            probe.unlink()
        finally:
            if not there:
                folder.rmdir()
    except OSError as error:
        raise ConfigError(
            f"no identity can be put there: {plain(error)}; name another -o DIR"
        ) from None


def install(bundle: Bundle, folder: Path, *, replace: bool = False) -> bool:
    """Put a bundle's files into `folder`; return false when they are there already."""
    path = folder / ids.CERTIFICATE_FILE
    if path.exists() and not replace:
        if _is_same_key(path, bundle):
            return False  # its certificate may have been renewed since
        raise ConfigError(f"{folder}: {_TAKEN}")
    ids.write_identity(folder, bundle.ca, bundle.certificate, bundle.key, bundle.broker)
    return True


def _is_same_key(path: Path, bundle: Bundle) -> bool:
    there = certs.read_certificate(path)
    same = there.public_key() == certs.parse_certificate(bundle.certificate, "").public_key()
    return same and certs.common_name(there) == bundle.name
