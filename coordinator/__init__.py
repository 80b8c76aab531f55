"""Decides and remembers: manifest, ledger, matchmaking, artifact store, and the faces it shows."""

__version__ = "0.1.0"
