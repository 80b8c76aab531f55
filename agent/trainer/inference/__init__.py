"""A stored model, loaded to score telemetry."""
