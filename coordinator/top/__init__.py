"""`fleet top`, the full-screen view of the fleet."""
