"""This host's own certificate: asks for the next one in time, and puts it into its place.

The key stays, so the new certificate is one file that is replaced atomically; the link reads it at
the next connection. The request for it is made by another program, once in many months: what an
agent would need for that takes as much memory as all of its own modules.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from agent.core.renewal import Renewal
from agent.process.command import PACKAGE_ROOT
from broker.clock import Now, Randomness, rfc3339
from broker.errors import ConfigError, plain
from broker.pki import identity as ids
from broker.pki import keyfiles
from broker.pki.identity import Identity
from broker.protocol.events import Connected, Disconnected, Incoming, Outgoing
from broker.protocol.messages import CertificateRequest, CertificateResponse, encode
from broker.protocol.topics import Topics
from broker.system.children import answer_of
from broker.system.files import RealDisk
from broker.system.machine import new_id

log = logging.getLogger("fleet.agent")

REQUEST_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class RequestMade:
    """A certificate signing request in PEM, or why there is none."""

    pem: str
    why: str = ""


def make_request(identity: Identity) -> RequestMade:
    """Have another program make a request for the key of `identity`; it may take a second."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "broker.pki.certificates",
        str(identity.folder),
        identity.name,
    ]
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]))
    try:
        done = answer_of(command, REQUEST_TIMEOUT_S, {**os.environ, "PYTHONPATH": path})
    except OSError as error:
        return RequestMade("", plain(error))
    if done.code:
        return RequestMade("", done.complaint("it was ended"))
    return RequestMade(done.output)


class Certificate:
    """The certificate of one identity, kept from ending."""

    def __init__(
        self,
        identity: Identity,
        topics: Topics,
        publish: Callable[[Outgoing], bool],
        prepare: Callable[[Identity], object],
        rng: Randomness,
    ) -> None:
        """Begin with the identity as it was loaded.

        `prepare` has a request made (`make_request`), which then comes by `turn`.
        """
        self._identity = identity
        self._topics = topics
        self._publish = publish
        self._prepare = prepare
        self._mark = identity.mark()
        self._renewal = Renewal(identity.begins_s, identity.ends_s, rng, new_id)
        self._connected = False
        self._is_making = False  # a request

    @property
    def expires_at(self) -> str:
        """When it ends, as RFC 3339."""
        return rfc3339(self._identity.ends_s)

    def next_deadline(self) -> float | None:
        """Return when to call `turn` next (monotonic seconds); none without a connection."""
        return self._renewal.next_deadline() if self._connected else None

    def turn(self, events: Iterable[object], now: Now) -> bool:
        """Take events, ask if it is time; return whether there is a new certificate.

        Of the link's, what concerns the connection and the answer; and `RequestMade`.
        """
        changed = False
        for event in events:
            match event:
                case Connected():
                    self._connected = True
                    changed |= self._read_again(now)
                    self._renewal.ask_at_once()
                case Disconnected():
                    self._connected = False
                case RequestMade(pem, why):
                    self._made(pem, why)
                case Incoming(topic, payload, retained) if not retained:
                    if topic == self._topics.identity_response(self._identity.name):
                        answer = self._renewal.answer(payload)
                        changed |= answer is not None and self._take(answer, now)
                case _:
                    pass
        if self._connected and self._renewal.due(now):
            self._ask()
        return changed

    def _read_again(self, now: Now) -> bool:
        """Take a certificate that `fleet join --replace` has put there; return whether it has."""
        mark = self._identity.mark()
        if mark == self._mark:
            return False
        self._mark = mark
        try:
            new = ids.load_identity(self._identity.folder, now.wall_s)
        except ConfigError:
            return False  # it is being replaced just now
        if new.name != self._identity.name:
            return False
        self._identity = new
        self._renewal.renewed(new.begins_s, new.ends_s)
        log.info("another certificate was put there; it ends on %s", ids.day(new.ends_s))
        return True

    def _made(self, pem: str, why: str) -> None:
        self._is_making = False
        if why:
            log.warning("the certificate cannot be renewed: %s", why)
        elif self._connected:
            self._publish_request(self._renewal.request(pem))

    def _ask(self) -> None:
        if (request := self._renewal.asked) is not None:
            self._publish_request(request)
        elif not self._is_making:
            self._is_making = True
            self._prepare(self._identity)

    def _publish_request(self, request: CertificateRequest) -> None:
        topic = self._topics.identity_request(self._identity.name)
        self._publish(Outgoing(topic, encode(request)))

    def _take(self, answer: CertificateResponse, now: Now) -> bool:
        if answer.certificate is None:
            log.warning("the certificate is not renewed: %s", answer.error)
            return False
        try:
            self._identity = self._replace(answer.certificate.encode(), now)
        except (ConfigError, OSError) as error:
            log.warning("the new certificate cannot be used: %s", plain(error))
            return False
        self._mark = self._identity.mark()
        self._renewal.renewed(self._identity.begins_s, self._identity.ends_s)
        log.info("the certificate was renewed; it ends on %s", ids.day(self._identity.ends_s))
        return True

    def _replace(self, pem: bytes, now: Now) -> Identity:
        """Put a certificate into its place. Raises `ConfigError` for one that is not ours."""
        old, disk = self._identity, RealDisk()
        path = old.folder / ids.CERTIFICATE_FILE
        making = path.with_name(f".{path.name}.new")
        keyfiles.write(making, pem, keyfiles.PUBLIC)
        try:
            new = ids.load_with(old.folder, making, now.wall_s)
            if new.name != old.name or new.ends_s <= old.ends_s:
                raise ConfigError("it is somebody else's, or ends no later than the one here")
            disk.replace(making, path)
        finally:
            making.unlink(missing_ok=True)
        disk.sync_folder(path.parent)
        return new
