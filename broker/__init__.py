"""Everything on the wire: topics, messages, the chunk stream, the client link, the broker."""

from broker.system.import_blocks import disable_plugins

disable_plugins()
