"""The agent's decisions: a state machine without IO. Pure."""
