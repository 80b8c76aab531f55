"""What travels on the wire: topics, messages, rights, signatures. Pure."""
