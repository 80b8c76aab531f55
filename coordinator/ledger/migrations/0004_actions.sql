-- What operators have asked to be changed, who they are, and what came of it.

CREATE TABLE actions (
    seq        INTEGER PRIMARY KEY,
    at         TEXT NOT NULL,
    who        TEXT NOT NULL,              -- operator:NAME, or coordinator for a reload of its own
    client     TEXT,                       -- who asked, and by which run of which program
    request_id TEXT,                       -- what that run called its request
    action     TEXT NOT NULL,              -- cancel, requeue, drain, resume, reload
    job_id     TEXT REFERENCES jobs (job_id),
    host       TEXT,
    outcome    TEXT NOT NULL CHECK (outcome IN ('done', 'refused')),
    what       TEXT NOT NULL,              -- what came of it, in words
    answer     TEXT,                       -- JSON; none: the request was not even looked at
    CHECK ((client IS NULL) = (request_id IS NULL)),
    CHECK (answer IS NULL OR client IS NOT NULL)
) STRICT;

CREATE INDEX actions_by_time ON actions (at);
CREATE INDEX events_by_time ON events (at);
