"""What operators ask of the core, one module a subject. Pure."""
