"""Metrics, intervals and the report."""
