-- The ledger. One row a job, one row an event; impossible rows are refused by the CHECKs.

CREATE TABLE jobs (
    job_id        TEXT PRIMARY KEY CHECK (length(job_id) = 64),
    name          TEXT NOT NULL,
    model         TEXT NOT NULL,
    mode          TEXT NOT NULL,
    spec          TEXT NOT NULL,                -- JSON, coordinator.jobs.plan_entries.spec_to_json
    priority      INTEGER NOT NULL,
    in_plan       INTEGER NOT NULL CHECK (in_plan IN (0, 1)),
    state         TEXT NOT NULL CHECK (
        state IN ('pending', 'claimed', 'running', 'completed', 'failed', 'cancelled')),
    attempt       INTEGER NOT NULL CHECK (attempt >= 0),  -- fencing token
    losses        INTEGER NOT NULL CHECK (losses >= 0),   -- attempts that ended by a lost lease
    host          TEXT,                         -- whoever was given the newest attempt
    instance      TEXT,                         -- the agent process that took it
    error         TEXT,
    artifact_id   TEXT CHECK (artifact_id IS NULL OR length(artifact_id) = 64),
    metrics       TEXT,                         -- JSON
    created_at    TEXT NOT NULL,
    pending_since TEXT NOT NULL,
    started_at    TEXT,
    finished_at   TEXT,
    CHECK ((state IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CHECK (state NOT IN ('claimed', 'running') OR (host IS NOT NULL AND attempt >= 1)),
    CHECK (state <> 'completed' OR artifact_id IS NOT NULL),
    CHECK ((state = 'failed') = (error IS NOT NULL))
) STRICT;

CREATE TABLE events (
    seq        INTEGER PRIMARY KEY,
    job_id     TEXT NOT NULL REFERENCES jobs (job_id),
    at         TEXT NOT NULL,
    event      TEXT NOT NULL,
    from_state TEXT,
    to_state   TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    host       TEXT,
    who        TEXT NOT NULL,
    why        TEXT NOT NULL
) STRICT;

CREATE INDEX events_by_job ON events (job_id, seq);
