-- Small artifacts that came with their reports, until they are files of the store: the commit that
-- completes a job makes its artifact durable as well.

CREATE TABLE bundles (
    artifact_id TEXT PRIMARY KEY CHECK (length(artifact_id) = 64),
    model       TEXT NOT NULL,
    mode        TEXT NOT NULL,
    data        BLOB NOT NULL CHECK (length(data) > 0)
) STRICT;
