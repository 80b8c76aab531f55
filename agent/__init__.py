"""One host's hands: capability, job supervision, bundling, upload, and the trainers it may run."""

__version__ = "0.1.0"
