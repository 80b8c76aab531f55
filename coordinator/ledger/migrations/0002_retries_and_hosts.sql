-- Failed attempts that were tried again, and what an operator or the fleet has decided about hosts.

ALTER TABLE jobs ADD COLUMN failures INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0);
ALTER TABLE jobs ADD COLUMN not_before TEXT;  -- a retry waits until then

CREATE TABLE hosts (
    host       TEXT PRIMARY KEY,
    drained    INTEGER NOT NULL CHECK (drained IN (0, 1)),  -- an operator keeps new jobs off it
    quarantine TEXT,                                        -- why the fleet does, if it does
    at         TEXT NOT NULL,
    who        TEXT NOT NULL
) STRICT;
