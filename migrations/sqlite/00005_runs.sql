-- +goose Up

-- A run is a grant of a name to several waiters of one session, which pass the lock on in the
-- session's memory. The row shows its first member, and the first and the last of its tokens; of a
-- holder without a run both are its own token. token is the highest token ever reserved for the
-- name: it never falls.
ALTER TABLE dblock_locks ADD COLUMN first_token bigint NOT NULL DEFAULT 0;
ALTER TABLE dblock_locks ADD COLUMN last_token bigint NOT NULL DEFAULT 0;
UPDATE dblock_locks SET first_token = token, last_token = token WHERE session_id IS NOT NULL;

-- passable: the grant may be part of a run. token: of a member of a run, which keeps its place until
-- the run ends; 0: it waits.
ALTER TABLE dblock_waiters ADD COLUMN passable integer NOT NULL DEFAULT 0;
ALTER TABLE dblock_waiters ADD COLUMN token bigint NOT NULL DEFAULT 0;

-- capacity: of a share, and of a place in the queue, the number of units that it states. The name's row has the smallest
-- that its holders state. mixed: they state several, so that it may rise when one of them leaves.
ALTER TABLE dblock_locks ADD COLUMN mixed boolean NOT NULL DEFAULT false;
ALTER TABLE dblock_shares ADD COLUMN capacity integer NOT NULL DEFAULT 0;
ALTER TABLE dblock_waiters ADD COLUMN capacity integer NOT NULL DEFAULT 0;
UPDATE dblock_shares SET capacity = (SELECT l.capacity FROM dblock_locks l WHERE l.name = dblock_shares.name);
UPDATE dblock_waiters SET capacity = (SELECT l.capacity FROM dblock_locks l WHERE l.name = dblock_waiters.name) WHERE units > 0;

-- An older build knows a holder by token.
UPDATE dblock_schema SET version = 5, usable_from = 5;

-- +goose Down
UPDATE dblock_locks SET token = last_token WHERE session_id IS NOT NULL;
ALTER TABLE dblock_waiters DROP COLUMN passable;
ALTER TABLE dblock_waiters DROP COLUMN token;
ALTER TABLE dblock_waiters DROP COLUMN capacity;
ALTER TABLE dblock_shares DROP COLUMN capacity;
ALTER TABLE dblock_locks DROP COLUMN mixed;
ALTER TABLE dblock_locks DROP COLUMN first_token;
ALTER TABLE dblock_locks DROP COLUMN last_token;
UPDATE dblock_schema SET version = 4, usable_from = 4;
