"""From a TOML manifest to plan entries."""
