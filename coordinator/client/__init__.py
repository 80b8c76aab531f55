"""The fleet as a client sees it, kept current: what the full-screen view and the web page show."""
