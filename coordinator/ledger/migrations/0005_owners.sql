-- What operators have decided about a host for a while, or about the whole fleet, and jobs that they
-- have asked for beside the manifest.

ALTER TABLE hosts ADD COLUMN drained_now INTEGER NOT NULL DEFAULT 0
    CHECK (drained_now IN (0, 1));      -- what it holds is given back, too
ALTER TABLE hosts ADD COLUMN snoozed_until TEXT;
ALTER TABLE hosts ADD COLUMN snoozed_by TEXT
    CHECK ((snoozed_by IS NULL) = (snoozed_until IS NULL));
ALTER TABLE hosts ADD COLUMN snooze_s REAL  -- for how long, s: a clock that was set back adds nothing
    CHECK ((snooze_s IS NULL) = (snoozed_until IS NULL));
ALTER TABLE hosts ADD COLUMN snooze_finish INTEGER NOT NULL DEFAULT 0
    CHECK (snooze_finish IN (0, 1));    -- what it holds may be finished

CREATE TABLE fleet (
    only   INTEGER PRIMARY KEY CHECK (only = 1),
    paused INTEGER NOT NULL CHECK (paused IN (0, 1)),
    at     TEXT NOT NULL,
    who    TEXT NOT NULL
) STRICT;

ALTER TABLE jobs ADD COLUMN submitted_by TEXT;  -- who has asked for it; none: the manifest
