-- Joins the queue of a name that somebody holds or waits for, in one statement: it decides by the lock row alone, and
-- the ticket comes from that row, locked. Its commit need not reach the disk: a place that a crash takes away is put back
-- by its owner.
-- name: JoinQueue :one
WITH l AS (
    UPDATE dblock_locks SET waiters = waiters + 1, next_ticket = next_ticket + 1
     WHERE dblock_locks.name = @name AND (dblock_locks.session_id IS NOT NULL OR dblock_locks.waiters > 0)
    RETURNING dblock_locks.name, next_ticket - 1 AS ticket
)
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)
SELECT l.name, l.ticket, @session, @host, @thread, @attempt, @lease, @metadata, dblock_now() FROM l
RETURNING ticket, set_config('synchronous_commit', 'off', true)::text AS commits;

-- After LockRow.
-- name: LeaveQueue :exec
WITH gone AS (
    DELETE FROM dblock_waiters w WHERE w.name = @name AND w.attempt = @attempt RETURNING w.name
)
UPDATE dblock_locks SET waiters = waiters - 1 WHERE dblock_locks.name = (SELECT gone.name FROM gone);
