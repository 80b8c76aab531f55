"""The coordinator as a program: settings, threads, connection, shell."""
