"""Jobs, plan entries and hosts as values: states, records, progress. Pure."""
