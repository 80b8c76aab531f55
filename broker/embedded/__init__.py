"""The embedded broker: amqtt with corrections; the only importer of amqtt.

Each override says which behaviour of amqtt 0.12.1 it replaces and has a test that fails on stock
amqtt (tests/conformance/test_embedded_*.py). They reach into amqtt's internals, so another version
is refused.

Without an identity it serves a fleet on one machine: loopback only, where everybody may do
everything. With one it serves a network: TLS, a certificate of the fleet's from every client, and
the rights that broker/protocol/acl.py gives to the name in it. MQTT 3.1.1 with clean sessions, MQTT
5 with sessions that may outlive their connection; nothing on disk.
"""

from broker.embedded.broker import AMQTT_VERSION, EmbeddedBroker
from broker.embedded.limits import Reason
from broker.embedded.serve import STOP_TIMEOUT_S, serve
from broker.embedded.settings import ServerSettings

__all__ = [
    "AMQTT_VERSION",
    "STOP_TIMEOUT_S",
    "EmbeddedBroker",
    "Reason",
    "ServerSettings",
    "serve",
]
