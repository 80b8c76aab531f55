"""A fleet's certificates for tests, and a mosquitto that lets in nobody without one."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.pki import keyfiles
from broker.pki.ca import BACKDATED_S, CRL_FILE, Authority
from tests.harness.brokers import BrokerProcess, mosquitto

LOOPBACK = ("127.0.0.1", "localhost")
HOUR_S = 3600.0
FAKE_S = 1.8e9  # by the clocks of the tests' own


@dataclass
class House:
    """What `fleet init` makes, in a folder of the test's own."""

    folder: Path
    authority: Authority
    at_s: float | None = None  # the time of everything in it, where it is not now

    @classmethod
    def make(
        cls, folder: Path, names: tuple[str, ...] = LOOPBACK, *,
        node: bool = False, at_s: float | None = None,
    ) -> House:  # fmt: skip
        """A CA, a month old, and a broker's certificate."""
        begins_s = (time.time() if at_s is None else at_s) - 30 * ids.DAY_S
        house = cls(folder, Authority.create(folder / "ca", begins_s), at_s)
        house.certify_broker(names, node=node)
        house.publish()
        return house

    @property
    def now_s(self) -> float:
        return time.time() if self.at_s is None else self.at_s

    @property
    def broker(self) -> Path:
        """The folder that is the broker's identity."""
        return self.folder / "broker"

    @property
    def crl(self) -> bytes:
        """The newest list of who is revoked."""
        return (self.authority.folder / CRL_FILE).read_bytes()

    def certify_broker(self, names: tuple[str, ...] = LOOPBACK, *, node: bool = False) -> None:
        """Give the broker a certificate, in the place of the one that it has."""
        key = certs.new_key()
        made = self.authority.issue_broker(key.public_key(), names, self.now_s, node=node)
        keyfiles.private_folder(self.broker)
        keyfiles.write(self.broker / "broker.key", certs.key_pem(key))
        keyfiles.write(self.broker / "broker.crt", made)
        keyfiles.write(self.broker / "ca.crt", self.authority.pem)

    def identity(
        self, name: str, *, at_s: float | None = None, days: float = 365, folder: str = ""
    ) -> Path:
        """A client's folder; issued at another time than now if told."""
        key = certs.new_key()
        now_s = self.now_s if at_s is None else at_s
        made = self.authority.issue(key.public_key(), name, now_s, days=days, replace=True)
        return self._written(folder or ids.folder_name(name), made, key)

    def known(self, name: str) -> Path:
        """The folder of the one certificate of this name, issued when it is first asked for."""
        folder = self.folder / "identities" / ids.folder_name(name)
        return folder if folder.exists() else self.identity(name)

    def odd(
        self, *names: str, begins_s: float = -BACKDATED_S, ends_s: float = HOUR_S,
        server: bool = False, signer: ec.EllipticCurvePrivateKey | None = None,
    ) -> Path:  # fmt: skip
        """The folder of a certificate that the CA would not make: of any names, by any signer.

        It is good from `begins_s` to `ends_s` from now.
        """
        key, from_s = certs.new_key(), self.now_s + begins_s + BACKDATED_S
        lasts_s = ends_s - begins_s - BACKDATED_S
        usual = certs.parse_certificate(
            self.authority.temporary(key.public_key(), "x", from_s, lasts_s, server=server), "odd"
        )
        builder = (
            x509.CertificateBuilder()
            .issuer_name(usual.issuer)
            .subject_name(x509.Name(x509.NameAttribute(NameOID.COMMON_NAME, one) for one in names))
            .public_key(key.public_key())
            .serial_number(usual.serial_number)
            .not_valid_before(usual.not_valid_before_utc)
            .not_valid_after(usual.not_valid_after_utc)
        )
        for extension in usual.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        made = builder.sign(signer or self.authority._key, hashes.SHA256())
        return self._written(f"odd-{made.serial_number:x}", certs.certificate_pem(made), key)

    def revoke(self, *names: str) -> None:
        """Revoke whoever has these names, and tell the broker."""
        for name in names:
            self.known(name)
            self.authority.revoke(name, self.now_s)
        self.publish()

    def publish(self) -> None:
        """Give the broker the newest CRL."""
        keyfiles.write(self.broker / CRL_FILE, self.crl)

    def context(self, shown: Path | None) -> ssl.SSLContext:
        """What a client needs that trusts this CA and shows the certificate in a folder."""
        made = ssl.create_default_context(cafile=str(self.broker / "ca.crt"))
        if shown is not None:
            made.load_cert_chain(shown / ids.CERTIFICATE_FILE, shown / ids.KEY_FILE)
        return made

    def _written(self, folder: str, made: bytes, key: ec.EllipticCurvePrivateKey) -> Path:
        where = self.folder / "identities" / folder
        ids.write_identity(where, self.authority.pem, made, certs.key_pem(key))
        return where


def mosquitto_tls(house: House) -> BrokerProcess:
    """Return a mosquitto that takes its users from their certificates, not started."""
    made = mosquitto(house.folder, "".join(f"{line}\n" for line in (
        f"cafile {house.broker / 'ca.crt'}",
        f"certfile {house.broker / 'broker.crt'}",
        f"keyfile {house.broker / 'broker.key'}",
        f"crlfile {house.broker / CRL_FILE}",
        "require_certificate true",
        "use_identity_as_username true",
        f"log_dest file {house.folder / 'mosquitto.log'}",
    )))  # fmt: skip
    made.scheme = "mqtts"
    return made
