"""Where the web page is served, and to whom."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from broker.errors import ConfigError
from broker.pki import keyfiles
from broker.system.address import is_loopback, parse_listen

MIN_PASSWORD_CHARS: Final = 12
MAX_PASSWORD_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Where to listen (port 0 takes a free one), with which certificate, for whom.

    Each is an option of `fleet dashboard`. `names` are further host names that browsers may use for
    it. `private`: nobody looks without the password; `read_only`: nobody has one. `public_url` is
    what browsers call it, where a proxy stands before it.
    """

    listen: str = "127.0.0.1:8086"
    certificate: Path | None = None
    key: Path | None = None
    plain: bool = False
    private: bool = False
    read_only: bool = False
    names: tuple[str, ...] = ()
    public_url: str = ""
    password_file: Path | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where to listen: host and port. Raises `ConfigError`."""
        return parse_listen(self.listen, "--listen", WebSettings().listen)

    @property
    def host(self) -> str:
        """The host of that."""
        return self.address[0]

    @property
    def scheme(self) -> str:
        """What its addresses begin with."""
        return "http" if self.certificate is None else "https"

    def url(self, port: int) -> str:
        """Return its address for this machine's browser, once the port is known."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - read, not bound
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{port}/"

    @property
    def public_origin(self) -> str:
        """What browsers send as `Origin` through the proxy."""
        parts = urlsplit(self.public_url.lower())
        return f"{parts.scheme}://{parts.netloc.removesuffix(':443')}"

    def is_loopback(self) -> bool:
        """Whether this machine alone can reach it."""
        return is_loopback(self.host)

    def check(self) -> None:
        """Raise `ConfigError` with the remedy for what is not safe, or cannot be."""
        where = f"--listen {self.listen}"
        if self.private and self.read_only:
            raise ConfigError("--private needs a password, and --read-only has none")
        if self.public_url and not _is_site(self.public_url):
            raise ConfigError(
                f"--public-url {self.public_url}: write it as https://NAME or https://NAME:PORT, "
                "without a dot at the name's end; the page needs a name of its own, and no path "
                "below another's"
            )
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("--certificate and --key go together: name both, or none")
        if self.certificate is not None and self.key is not None:
            check_pair(self.certificate, self.key)
        elif not (self.is_loopback() or self.plain):
            raise ConfigError(
                f"{where}: without TLS, anybody on the way can read everything, the password "
                "too; name a certificate with --certificate FILE --key FILE, listen on 127.0.0.1 "
                "and come by `ssh -L 8086:127.0.0.1:8086 THIS-MACHINE`, or say --plain where the "
                "network is to be trusted"
            )


def _is_site(url: str) -> bool:
    """Whether an address is that of a whole site, over HTTPS."""
    try:
        parts = urlsplit(url)
        name = parts.hostname or ""
        told = bool(name) and not name.endswith(".") and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    plain = parts.path in {"", "/"} and not (parts.query or parts.fragment or "@" in parts.netloc)
    return told and plain and parts.scheme == "https" and url.isprintable()


def check_pair(certificate: Path, key: Path) -> None:
    """Raise `ConfigError` when the two files are not a certificate and its key."""
    for option, path in (("--certificate", certificate), ("--key", key)):
        if not path.is_file():
            raise ConfigError(f"{option} {path}: there is no such file")
    keyfiles.check_secret(key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ssl.SSLError):
        raise ConfigError(
            f"--certificate {certificate}, --key {key}: these are not a certificate and its key "
            "in PEM, without a password"
        ) from None


def read_password(path: Path) -> str:
    """Return the password in a file, its first line.

    Raises `ConfigError` for one that cannot be read, that others may read, or that is too short.
    """
    keyfiles.check_secret(path)
    try:
        text = keyfiles.read(path, MAX_PASSWORD_BYTES).decode("utf-8").partition("\n")[0].strip()
    except UnicodeDecodeError:
        raise ConfigError(f"--password-file {path}: is not text in UTF-8") from None
    if len(text) < MIN_PASSWORD_CHARS:
        raise ConfigError(
            f"--password-file {path}: a password has {MIN_PASSWORD_CHARS} characters or more"
        )
    return text
