"""Home Assistant and metrics: from the core's state to payloads, without IO."""
