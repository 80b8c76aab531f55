"""Configuration files for mosquitto, RabbitMQ and NATS, made from the table of rights.

`render` gives the files, `write` puts them into a folder. brokers.md says how they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.deploy import mosquitto, nats, rabbitmq
from broker.deploy.site import Node, Ports, Site, write

__all__ = ["DATA", "RENDERERS", "Node", "Ports", "Site", "write"]

# broker -> function that returns its files, text by name
RENDERERS: Final[Mapping[str, Callable[[Site], dict[str, str]]]] = {
    "mosquitto": mosquitto.render,
    "rabbitmq": rabbitmq.render,
    "nats": nats.render,
}
# broker -> where Debian's package has it keep its data
DATA: Final[Mapping[str, str]] = {
    "mosquitto": "/var/lib/mosquitto",
    "rabbitmq": "/var/lib/rabbitmq",
    "nats": "/var/lib/nats",
}
