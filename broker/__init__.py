"""Everything on the wire: topics, messages, the chunk stream, the client link, the broker."""
