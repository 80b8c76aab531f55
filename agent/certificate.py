"""This host's own certificate: asks for the next one in time, and puts it into its place.

The key stays, so the new certificate is one file that is replaced atomically; the link reads it at
the next connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from agent.renewal import Renewal
from broker import identity as ids
from broker import private
from broker.clock import Now, Randomness, rfc3339
from broker.errors import ConfigError, plain
from broker.identity import Identity
from broker.machine import new_id
from broker.messages import CertificateResponse, encode
from broker.topics import Topics
from broker.wire import Connected, Disconnected, Incoming, Outgoing

log = logging.getLogger("fleet.agent")


class Certificate:
    """The certificate of one identity, kept from ending."""

    def __init__(
        self,
        identity: Identity,
        topics: Topics,
        publish: Callable[[Outgoing], bool],
        rng: Randomness,
    ) -> None:
        """Begin with the identity as it was loaded."""
        self._identity = identity
        self._topics = topics
        self._publish = publish
        self._renewal = Renewal(identity.begins_s, identity.ends_s, rng, new_id)
        self._connected = False

    @property
    def expires_at(self) -> str:
        """When it ends, as RFC 3339."""
        return rfc3339(self._identity.ends_s)

    def next_deadline(self) -> float | None:
        """Return when to call `turn` next (monotonic seconds); none without a connection."""
        return self._renewal.next_deadline() if self._connected else None

    def turn(self, events: Iterable[object], now: Now) -> bool:
        """Take events of the link, ask if it is time; return whether there is a new certificate."""
        changed = False
        for event in events:
            match event:
                case Connected():
                    self._connected = True
                    self._renewal.ask_at_once()
                case Disconnected():
                    self._connected = False
                case Incoming(topic, payload, retained) if not retained:
                    if topic == self._topics.identity_response(self._identity.name):
                        answer = self._renewal.answer(payload)
                        changed |= answer is not None and self._take(answer, now)
                case _:
                    pass
        if self._connected and self._renewal.due(now):
            self._ask()
        return changed

    def _ask(self) -> None:
        try:
            request = self._renewal.request(self._request)
        except ConfigError as error:
            log.warning("the certificate cannot be renewed: %s", error)
            return
        topic = self._topics.identity_request(self._identity.name)
        self._publish(Outgoing(topic, encode(request)))

    def _request(self) -> str:
        key = ids.read_key(self._identity.folder / ids.KEY_FILE)
        return ids.request_pem(key, self._identity.name).decode("ascii")

    def _take(self, answer: CertificateResponse, now: Now) -> bool:
        if answer.certificate is None:
            log.warning("the certificate is not renewed: %s", answer.error)
            return False
        try:
            self._identity = self._replace(answer.certificate.encode(), now)
        except (ConfigError, OSError) as error:
            log.warning("the new certificate cannot be used: %s", plain(error))
            return False
        self._renewal.renewed(self._identity.begins_s, self._identity.ends_s)
        log.info("the certificate was renewed; it ends on %s", ids.day(self._identity.ends_s))
        return True

    def _replace(self, pem: bytes, now: Now) -> Identity:
        """Put a certificate into its place. Raises `ConfigError` for one that is not ours."""
        folder, name = self._identity.folder, self._identity.name
        source = "the coordinator's answer"
        certificate = ids.parse_certificate(pem, source)
        authority = ids.read_certificate(folder / ids.CA_FILE)
        key = ids.read_key(folder / ids.KEY_FILE)
        ids.check_parts(source, authority, certificate, key, now.wall_s)
        begins_s, ends_s = ids.validity_s(certificate)
        if ids.common_name(certificate) != name or ends_s <= self._identity.ends_s:
            raise ConfigError(f"{source}: is somebody else's, or ends no later than this one")
        path = folder / ids.CERTIFICATE_FILE
        private.write(path, ids.certificate_pem(certificate), private.PUBLIC)
        return Identity(folder, name, begins_s, ends_s)
