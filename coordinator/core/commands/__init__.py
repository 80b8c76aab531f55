"""The operators' requests to the core, one module per subject. Pure."""
