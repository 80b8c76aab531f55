"""Checks that every program of the fleet shares, and how their findings are shown."""
