"""The coordinator's decisions: a state machine without IO. Pure."""
