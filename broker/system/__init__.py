"""The machine: files, settings, clocks, logs, deadlines."""
