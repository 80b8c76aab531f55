"""The agent as a program: settings, threads, connection, shell."""
