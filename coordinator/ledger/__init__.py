"""The SQLite ledger; the only importer of sqlite3."""
