"""The embedded broker, on amqtt: MQTT 3.1.1 and 5 by TCP, TLS and websockets, nothing on disk.

Without an identity it serves a fleet on one machine: loopback only, where everybody may do
everything. With one it serves a network: TLS, a certificate of the fleet's from every client, and
the rights that broker/protocol/acl.py gives to the name in it.
"""

from broker.embedded.broker import EmbeddedBroker
from broker.embedded.limits import Reason
from broker.embedded.settings import ServerSettings

__all__ = ["EmbeddedBroker", "Reason", "ServerSettings"]
