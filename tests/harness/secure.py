"""A fleet's certificates for tests, and a mosquitto that lets in nobody without one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.pki import keyfiles
from broker.pki.ca import CRL_FILE, Authority
from tests.harness.brokers import BrokerProcess, mosquitto

LOOPBACK = ("127.0.0.1", "localhost")


@dataclass
class House:
    """What `fleet init` makes, in a folder of the test's own."""

    folder: Path
    authority: Authority

    @classmethod
    def make(cls, folder: Path, names: tuple[str, ...] = LOOPBACK) -> House:
        """A CA, a month old, and a broker's certificate."""
        house = cls(folder, Authority.create(folder / "ca", time.time() - 30 * ids.DAY_S))
        key = certs.new_key()
        broker = house.authority.issue_broker(key.public_key(), names, time.time())
        keyfiles.private_folder(folder / "broker")
        keyfiles.write(folder / "broker" / "broker.key", certs.key_pem(key))
        keyfiles.write(folder / "broker" / "broker.crt", broker)
        keyfiles.write(folder / "broker" / "ca.crt", house.authority.pem)
        house.publish()
        return house

    def identity(
        self, name: str, *, at_s: float | None = None, days: float = 365, folder: str = ""
    ) -> Path:
        """A client's folder; issued at another time than now if told."""
        key = certs.new_key()
        now_s = time.time() if at_s is None else at_s
        made = self.authority.issue(key.public_key(), name, now_s, days=days, replace=True)
        where = self.folder / "identities" / (folder or ids.folder_name(name))
        ids.write_identity(where, self.authority.pem, made, certs.key_pem(key))
        return where

    def publish(self) -> None:
        """Give the broker the newest CRL."""
        data = (self.authority.folder / CRL_FILE).read_bytes()
        keyfiles.write(self.folder / "broker" / CRL_FILE, data)


def mosquitto_tls(house: House) -> BrokerProcess:
    """Return a mosquitto that takes its users from their certificates, not started."""
    broker = house.folder / "broker"
    made = mosquitto(house.folder, "".join(f"{line}\n" for line in (
        f"cafile {broker / 'ca.crt'}",
        f"certfile {broker / 'broker.crt'}",
        f"keyfile {broker / 'broker.key'}",
        f"crlfile {broker / 'crl.pem'}",
        "require_certificate true",
        "use_identity_as_username true",
        f"log_dest file {house.folder / 'mosquitto.log'}",
    )))  # fmt: skip
    made.scheme = "mqtts"
    return made
