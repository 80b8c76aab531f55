-- Where a job that was given back left off: an artifact in the store, and the attempt that made it.

ALTER TABLE jobs ADD COLUMN checkpoint_id TEXT
    CHECK (checkpoint_id IS NULL OR length(checkpoint_id) = 64);
ALTER TABLE jobs ADD COLUMN checkpoint_bytes INTEGER
    CHECK ((checkpoint_bytes IS NULL) = (checkpoint_id IS NULL));
ALTER TABLE jobs ADD COLUMN checkpoint_attempt INTEGER
    CHECK ((checkpoint_attempt IS NULL) = (checkpoint_id IS NULL));
