-- +goose Up

-- No place in the queue of the name has a lower ticket: a search for the first place begins here. The index has the places
-- that have left until VACUUM comes, in front of all others. Tickets only rise, so that it is right of a row in which an
-- older build has handed on, too.
ALTER TABLE dblock_locks ADD COLUMN first_ticket bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN dblock_locks.first_ticket IS 'no place in the queue has a lower ticket';

-- For statements that name a session. Without the condition, which is always true, a search for a name may read all of this
-- index, since it is smaller than the primary key.
DROP INDEX dblock_waiters_session;
CREATE INDEX dblock_waiters_session ON dblock_waiters (session_id, name) WHERE session_id IS NOT NULL;

-- Room for a place to become a member of a run within its page, so that no index changes.
ALTER TABLE dblock_waiters SET (fillfactor = 50);

UPDATE dblock_schema SET version = 7;

-- +goose Down
ALTER TABLE dblock_locks DROP COLUMN first_ticket;
DROP INDEX dblock_waiters_session;
CREATE INDEX dblock_waiters_session ON dblock_waiters (session_id, name);
ALTER TABLE dblock_waiters RESET (fillfactor);
UPDATE dblock_schema SET version = 6;
