"""What this host is and how it is used: capability, GPUs, data, its owner."""
