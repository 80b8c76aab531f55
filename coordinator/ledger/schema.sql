-- The ledger, version 1. Times are RFC 3339 in UTC. CHECKs refuse rows that cannot be.

CREATE TABLE jobs (
    job_id             TEXT PRIMARY KEY CHECK (length(job_id) = 64),
    name               TEXT NOT NULL,
    model              TEXT NOT NULL,
    mode               TEXT NOT NULL,
    spec               TEXT NOT NULL,       -- JSON, coordinator.jobs.plan_entries.spec_to_json
    priority           INTEGER NOT NULL,
    in_plan            INTEGER NOT NULL CHECK (in_plan IN (0, 1)),
    submitted_by       TEXT,                -- operator who submitted it; NULL: the manifest
    state              TEXT NOT NULL CHECK (
        state IN ('pending', 'claimed', 'running', 'completed', 'failed', 'cancelled')),
    attempt            INTEGER NOT NULL CHECK (attempt >= 0),   -- fencing token
    void_attempt       INTEGER NOT NULL CHECK (                 -- newest attempt voided by a requeue
        void_attempt >= 0 AND void_attempt <= attempt),
    losses             INTEGER NOT NULL CHECK (losses >= 0),    -- attempts ended by a lost lease
    failures           INTEGER NOT NULL CHECK (failures >= 0),  -- failed attempts that were retried
    not_before         TEXT,                -- a retry waits until then
    host               TEXT,                -- host of the newest attempt
    instance           TEXT,                -- agent process that accepted it
    error              TEXT,
    error_kind         TEXT CHECK (error IS NOT NULL OR error_kind IS NULL),
    artifact_id        TEXT CHECK (artifact_id IS NULL OR length(artifact_id) = 64),
    metrics            TEXT,                -- JSON
    ran_s              REAL CHECK (         -- run time of the attempt that ended the job
        ran_s IS NULL OR (ran_s >= 0 AND finished_at IS NOT NULL)),
    checkpoint_id      TEXT CHECK (checkpoint_id IS NULL OR length(checkpoint_id) = 64),
    checkpoint_bytes   INTEGER CHECK ((checkpoint_bytes IS NULL) = (checkpoint_id IS NULL)),
    checkpoint_attempt INTEGER CHECK ((checkpoint_attempt IS NULL) = (checkpoint_id IS NULL)),
    created_at         TEXT NOT NULL,
    pending_since      TEXT NOT NULL,
    started_at         TEXT,
    finished_at        TEXT,
    CHECK ((state IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CHECK (state NOT IN ('claimed', 'running') OR (host IS NOT NULL AND attempt >= 1)),
    CHECK (state <> 'completed' OR artifact_id IS NOT NULL),
    CHECK ((state = 'failed') = (error IS NOT NULL))
) STRICT;

CREATE TABLE events (                       -- history of each job; the newest is never deleted
    seq         INTEGER PRIMARY KEY,
    job_id      TEXT NOT NULL REFERENCES jobs (job_id),
    at          TEXT NOT NULL,              -- when the coordinator heard of it
    event       TEXT NOT NULL,
    from_state  TEXT,
    to_state    TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    host        TEXT,
    who         TEXT NOT NULL,
    why         TEXT NOT NULL CHECK (json_valid(why)),     -- coordinator.jobs.causes
    ran_s       REAL CHECK (ran_s IS NULL OR ran_s >= 0),   -- measured by the agent
    artifact_id TEXT CHECK (                                -- result that this event brought
        artifact_id IS NULL OR length(artifact_id) = 64),
    size_bytes  INTEGER CHECK (                             -- of that result
        size_bytes IS NULL OR (size_bytes >= 0 AND artifact_id IS NOT NULL))
) STRICT;
CREATE INDEX events_by_job ON events (job_id, seq);
CREATE INDEX events_by_time ON events (at);

CREATE TABLE actions (                      -- what operators asked for, and the outcome
    seq        INTEGER PRIMARY KEY,
    at         TEXT NOT NULL,
    who        TEXT NOT NULL,               -- operator:NAME; coordinator for its own reload
    client     TEXT,                        -- client that asked; with request_id it names a request
    request_id TEXT,
    action     TEXT NOT NULL,               -- cancel, requeue, drain, resume, reload, …
    job_id     TEXT REFERENCES jobs (job_id),
    host       TEXT,
    outcome    TEXT NOT NULL CHECK (outcome IN ('done', 'refused')),
    what       TEXT NOT NULL CHECK (json_valid(what)),     -- what came of it: jobs.causes
    answer     TEXT,                        -- JSON; NULL: refused before it was looked at
    CHECK ((client IS NULL) = (request_id IS NULL)),
    CHECK (answer IS NULL OR client IS NOT NULL)
) STRICT;
CREATE INDEX actions_by_time ON actions (at);

CREATE TABLE hosts (                        -- decisions of operators and of the fleet about hosts
    host   TEXT PRIMARY KEY,
    record TEXT NOT NULL CHECK (json_valid(record))     -- coordinator.jobs.records.HostRecord
) STRICT;

CREATE TABLE fleet (                        -- one row: whether it is paused, the plan but its jobs
    only   INTEGER PRIMARY KEY CHECK (only = 1),
    record TEXT NOT NULL CHECK (json_valid(record))     -- coordinator.jobs.records.FleetRecord
) STRICT;

CREATE TABLE bundles (                      -- small artifacts, until they are files of the store
    artifact_id TEXT PRIMARY KEY CHECK (length(artifact_id) = 64),
    model       TEXT NOT NULL,
    mode        TEXT NOT NULL,
    data        BLOB NOT NULL CHECK (length(data) > 0)
) STRICT;

CREATE TABLE pushed (                       -- programs and datasets; the newest has the last seq
    seq   INTEGER PRIMARY KEY,
    title TEXT NOT NULL UNIQUE,             -- NAME@DIGEST
    at    TEXT NOT NULL,
    who   TEXT NOT NULL,
    offer TEXT NOT NULL CHECK (json_valid(offer))       -- broker.protocol.messages.Offer
) STRICT;

CREATE VIEW newest_certificate_actions AS   -- the last action on the certificate of each host
SELECT max(seq) AS seq FROM actions
WHERE action IN ('enroll', 'revoke') AND outcome = 'done' AND host IS NOT NULL GROUP BY host;
