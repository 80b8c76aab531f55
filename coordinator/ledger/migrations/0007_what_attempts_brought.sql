-- How long a trainer ran, as its agent measured it, and which result came of it: an event comes when
-- the coordinator hears of it, however long the report has waited for its way.

ALTER TABLE events ADD COLUMN ran_s REAL CHECK (ran_s IS NULL OR ran_s >= 0);
ALTER TABLE events ADD COLUMN artifact_id TEXT      -- the result that this event brought
    CHECK (artifact_id IS NULL OR length(artifact_id) = 64);
ALTER TABLE events ADD COLUMN size_bytes INTEGER    -- of that result
    CHECK (size_bytes IS NULL OR (size_bytes >= 0 AND artifact_id IS NOT NULL));

-- Of the attempt that ended the job: its event may be deleted one day, the job is not.
ALTER TABLE jobs ADD COLUMN ran_s REAL
    CHECK (ran_s IS NULL OR (ran_s >= 0 AND finished_at IS NOT NULL));

-- The newest attempt that a requeue has voided: what it finishes is not taken any more.

ALTER TABLE jobs ADD COLUMN void_attempt INTEGER NOT NULL DEFAULT 0
    CHECK (void_attempt >= 0 AND void_attempt <= attempt);
UPDATE jobs SET void_attempt = coalesce(
    (SELECT max(attempt) FROM events WHERE events.job_id = jobs.job_id AND event = 'requeued'), 0);
