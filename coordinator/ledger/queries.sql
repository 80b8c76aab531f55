-- The statements of the ledger, by name: `-- name: NAME` stands before each.

-- name: load_jobs
SELECT * FROM jobs;

-- name: insert_job
INSERT INTO jobs (
    job_id, name, model, mode, spec, priority, in_plan, submitted_by, state, attempt, void_attempt,
    losses, failures, not_before, host, instance, error, error_kind, artifact_id, metrics,
    ran_s, checkpoint_id, checkpoint_bytes, checkpoint_attempt, created_at, pending_since,
    started_at, finished_at
) VALUES (
    :job_id, :name, :model, :mode, :spec, :priority, :in_plan, :submitted_by, :state, :attempt,
    :void_attempt, :losses, :failures, :not_before, :host, :instance, :error,
    :error_kind, :artifact_id, :metrics, :ran_s, :checkpoint_id, :checkpoint_bytes, :checkpoint_attempt, :created_at,
    :pending_since, :started_at, :finished_at
);

-- name: update_job
-- Matches no row when the job is no longer in the state and attempt that the caller knows.
-- A spec is long and seldom changes: NULL leaves it as it is.
UPDATE jobs SET
    name = :name, model = :model, mode = :mode, spec = coalesce(:spec, spec), priority = :priority,
    in_plan = :in_plan, submitted_by = :submitted_by, state = :state, attempt = :attempt,
    void_attempt = :void_attempt, losses = :losses, failures = :failures, not_before = :not_before,
    host = :host, instance = :instance, error = :error, error_kind = :error_kind,
    artifact_id = :artifact_id, metrics = :metrics, ran_s = :ran_s, checkpoint_id = :checkpoint_id,
    checkpoint_bytes = :checkpoint_bytes, checkpoint_attempt = :checkpoint_attempt,
    created_at = :created_at, pending_since = :pending_since, started_at = :started_at,
    finished_at = :finished_at
WHERE job_id = :job_id AND state = :was_state AND attempt = :was_attempt;

-- name: insert_event
INSERT INTO events (
    job_id, at, event, from_state, to_state, attempt, host, who, why, ran_s, artifact_id, size_bytes
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: events_of_job
SELECT at, event, from_state AS "from", to_state AS "to", attempt, host, who, why, ran_s FROM events
WHERE job_id = ? ORDER BY seq DESC LIMIT ?;

-- name: prune_events
-- Deletes the oldest events of a job that are older than a time, and keeps the newest few.
DELETE FROM events WHERE seq IN (
    SELECT seq FROM (
        SELECT seq,
            row_number() OVER (PARTITION BY job_id ORDER BY seq DESC) AS place,
            max(at) OVER (PARTITION BY job_id ORDER BY seq) AS newest_so_far
        FROM (SELECT job_id FROM events GROUP BY job_id HAVING count(*) > :keep)
        JOIN events USING (job_id)
    ) WHERE place > :keep AND newest_so_far < :older_than
);

-- name: keep_bundle
INSERT OR REPLACE INTO bundles (artifact_id, model, mode, data) VALUES (?, ?, ?, ?);

-- name: bundle_sizes
SELECT artifact_id, length(data) FROM bundles;

-- name: load_bundle
SELECT artifact_id, data, model, mode FROM bundles WHERE artifact_id = ?;

-- name: delete_bundle
DELETE FROM bundles WHERE artifact_id = ?;

-- name: load_hosts
SELECT record FROM hosts;

-- name: put_host
INSERT OR REPLACE INTO hosts (host, record) VALUES (?, ?);

-- name: delete_host
DELETE FROM hosts WHERE host = ?;

-- name: load_pushed
SELECT json_object('offer', json(offer), 'at', at, 'who', who) FROM pushed ORDER BY seq;

-- name: put_pushed
INSERT OR REPLACE INTO pushed (title, at, who, offer) VALUES (?, ?, ?, ?);

-- name: delete_pushed
DELETE FROM pushed WHERE title = ?;

-- name: load_fleet
SELECT record FROM fleet;

-- name: put_fleet
INSERT OR REPLACE INTO fleet (only, record) VALUES (1, ?);

-- name: ended_attempts
-- What was measured of an attempt that ended more than once (lost, and there again) is all of it: it
-- is given with its last end alone, even where that came later, with a result that is kept. Where
-- nothing was measured, a result or a failure out of pending is late: its hours were given by then.
-- An attempt on a host that had the job before may continue from what was kept there, so it does
-- not count as a run from the beginning; after a requeue it does.
SELECT ended.seq, ended.at, ended.event, ended.from_state, ended.to_state, ended.job_id,
    ended.attempt, jobs.name, jobs.model, jobs.mode,
    json_extract(jobs.spec, '$.hyper.epochs') AS epochs,
    coalesce(began.host, ended.host) AS host, began.at AS began, began.why AS lead,
    (began.event = 'started' OR ended.ran_s IS NOT NULL) AND (
        SELECT json_extract(given.why, '$.resumed_from') IS NULL FROM events AS given
        WHERE given.job_id = ended.job_id AND given.attempt = ended.attempt
        AND given.event = 'assigned') AND (
        ended.attempt = 1 OR NOT EXISTS (
            SELECT 1 FROM events AS tried WHERE tried.job_id = ended.job_id
            AND tried.attempt < ended.attempt AND tried.event = 'started'
            AND tried.host = coalesce(began.host, ended.host) AND NOT EXISTS (
                SELECT 1 FROM events AS anew WHERE anew.job_id = ended.job_id
                AND anew.event = 'requeued' AND anew.seq BETWEEN tried.seq AND ended.seq)))
    AS whole,
    coalesce(ended.ran_s, (
        SELECT max(said.ran_s) FROM events AS said WHERE said.job_id = ended.job_id
        AND said.seq > ended.seq AND said.attempt = ended.attempt)) AS ran_s,
    EXISTS (
        SELECT 1 FROM events AS after JOIN events AS said ON said.job_id = after.job_id
        AND said.seq >= after.seq AND said.attempt = after.attempt
        WHERE after.job_id = ended.job_id AND after.seq > ended.seq
        AND after.attempt = ended.attempt AND said.ran_s IS NOT NULL
        AND after.event IN (SELECT value FROM json_each(:ends))) AS elsewhere
FROM events AS ended JOIN jobs USING (job_id) LEFT JOIN events AS began ON began.seq = (
    SELECT max(seq) FROM events AS earlier WHERE earlier.job_id = ended.job_id
    AND earlier.seq < ended.seq AND earlier.attempt = ended.attempt
    AND earlier.event IN ('started', 'resumed'))
WHERE ended.seq < :before AND ended.seq > :after AND (:since IS NULL OR ended.at >= :since)
    AND ended.event IN (SELECT value FROM json_each(:events))
    AND (ended.from_state IN ('claimed', 'running')
        OR ended.event IN ('completed', 'failed', 'cancelled') OR ended.ran_s IS NOT NULL)
ORDER BY ended.seq DESC LIMIT :limit;

-- name: results_of_job
SELECT event, attempt, at, host, who, why, artifact_id, size_bytes FROM events
WHERE job_id = ? AND event IN ('completed', 'kept', 'requeued') ORDER BY seq;

-- name: set_aside_since
SELECT (
    SELECT max(brought.artifact_id) FROM events AS brought WHERE brought.job_id = gone.job_id
    AND brought.attempt = gone.attempt AND brought.artifact_id IS NOT NULL)
FROM events AS gone
WHERE gone.at >= ? AND gone.event = 'requeued' AND gone.from_state IN ('completed', 'failed');

-- name: story_of_events
-- The columns are those of story_of_actions, so that the rows of both become the same fields.
SELECT seq, at, who, event, 'done' AS outcome, job_id,
    (SELECT name FROM jobs WHERE jobs.job_id = told.job_id) AS name, host, attempt,
    from_state AS "from", to_state AS "to", why
FROM events AS told
WHERE seq > :after AND (:since IS NULL OR at >= :since)
    AND (:job_id IS NULL OR job_id = :job_id)
    AND (:host IS NULL OR host = :host OR who = 'host:' || :host)
    AND (:who IS NULL OR :who <> '' AND :who IN (
        who, substr(who, 1, instr(who, ':') - 1), substr(who, instr(who, ':') + 1)))
ORDER BY seq LIMIT :limit;

-- name: story_of_actions
-- What moved a job is in its events already.
SELECT seq, at, who, action AS event, outcome, job_id,
    (SELECT name FROM jobs WHERE jobs.job_id = told.job_id) AS name, host, NULL AS attempt,
    NULL AS "from", NULL AS "to", what AS why
FROM actions AS told
WHERE NOT (outcome = 'done'
        AND (action IN ('cancel', 'requeue') OR action = 'run' AND what = '{}'))
    AND seq > :after AND (:since IS NULL OR at >= :since)
    AND (:job_id IS NULL OR job_id = :job_id)
    AND (:host IS NULL OR host = :host OR who = 'host:' || :host)
    AND (:who IS NULL OR :who <> '' AND :who IN (
        who, substr(who, 1, instr(who, ':') - 1), substr(who, instr(who, ':') + 1)))
ORDER BY seq LIMIT :limit;

-- name: newest_event
SELECT coalesce(max(seq), 0) FROM events;

-- name: newest_action
SELECT coalesce(max(seq), 0) FROM actions;

-- name: insert_action
INSERT INTO actions (
    at, who, client, request_id, action, job_id, host, outcome, what, answer
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: newest_answers
SELECT client, request_id, at, answer FROM actions WHERE answer IS NOT NULL
ORDER BY seq DESC LIMIT ?;

-- name: revoked_hosts
SELECT host, at, who FROM actions
WHERE action = 'revoke' AND seq IN (SELECT seq FROM newest_certificate_actions);

-- name: prune_actions
-- The newest answers and the newest action on each certificate stay, however old they are. Of the
-- refused actions without an answer only the newest stay, however new: they push nothing out.
DELETE FROM actions WHERE (at < :older_than
    AND seq NOT IN (
        SELECT seq FROM actions WHERE answer IS NOT NULL ORDER BY seq DESC LIMIT :answers)
    AND seq NOT IN (SELECT seq FROM newest_certificate_actions)
) OR seq IN (
    SELECT seq FROM actions WHERE answer IS NULL ORDER BY seq DESC LIMIT -1 OFFSET :most);
