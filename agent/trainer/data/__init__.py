"""From raw telemetry to windows."""
