"""What the coordinator shows of itself to other systems: pure, from what it knows to payloads."""
