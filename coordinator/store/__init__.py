"""Artifacts, logs and curves on disk."""
