-- +goose Up

-- A run is a grant of a name to several waiters of one session, which pass the lock on in the
-- session's memory. The row shows its first member, and the first and the last of its tokens; of a
-- holder without a run both are its own token. token is the highest token ever reserved for the
-- name: it never falls.
ALTER TABLE dblock_locks
    ADD COLUMN first_token bigint NOT NULL DEFAULT 0,
    ADD COLUMN last_token  bigint NOT NULL DEFAULT 0;
UPDATE dblock_locks SET first_token = token, last_token = token WHERE session_id IS NOT NULL;

-- passable: the grant may be part of a run. token: of a member of a run, which keeps its place until
-- the run ends; 0: it waits.
ALTER TABLE dblock_waiters
    ADD COLUMN passable boolean NOT NULL DEFAULT false,
    ADD COLUMN token    bigint  NOT NULL DEFAULT 0;

CREATE OR REPLACE VIEW dblock_holders AS
SELECT name, token, session_id, host, thread, holds, attempt, units, acquired_at, expires_at, metadata, asked
  FROM dblock_shares
UNION ALL
SELECT name, last_token, session_id, host, thread, holds, attempt, 0, acquired_at, expires_at, metadata, asked
  FROM dblock_locks WHERE session_id IS NOT NULL;

-- An older build knows a holder by token.
UPDATE dblock_schema SET version = 5, usable_from = 5;

-- +goose Down
UPDATE dblock_locks SET token = last_token WHERE session_id IS NOT NULL;
CREATE OR REPLACE VIEW dblock_holders AS
SELECT name, token, session_id, host, thread, holds, attempt, units, acquired_at, expires_at, metadata, asked
  FROM dblock_shares
UNION ALL
SELECT name, token, session_id, host, thread, holds, attempt, 0, acquired_at, expires_at, metadata, asked
  FROM dblock_locks WHERE session_id IS NOT NULL;
-- dblock_locks first, as Look and Claims read: otherwise a client that runs on deadlocks with this.
ALTER TABLE dblock_locks DROP COLUMN first_token, DROP COLUMN last_token;
ALTER TABLE dblock_waiters DROP COLUMN passable, DROP COLUMN token;
UPDATE dblock_schema SET version = 4, usable_from = 4;
