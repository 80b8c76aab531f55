"""What every program needs of its machine: files, settings, clocks, logs, deadlines."""
