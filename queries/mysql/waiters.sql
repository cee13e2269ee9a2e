-- After LockRow: takes a ticket from the name's row; 0 where nobody holds the name and nobody waits (the row stays
-- locked), or where there is no row. The conditions read the same before and after either assignment.
-- name: JoinQueue :execlastid
UPDATE dblock_locks SET
       next_ticket = IF(session_id IS NULL AND waiters = 0, next_ticket + LAST_INSERT_ID(0), LAST_INSERT_ID(next_ticket) + 1),
       waiters = IF(session_id IS NULL AND waiters = 0, 0, waiters + 1)
 WHERE name = sqlc.arg(name);

-- After JoinQueue.
-- name: AddWaiter :exec
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)
SELECT sqlc.arg(name), sqlc.arg(ticket), sqlc.arg(session), sqlc.arg(host), sqlc.arg(thread), sqlc.arg(attempt), sqlc.arg(lease), sqlc.arg(metadata), c.now_us
  FROM dblock_clock c;

-- After LockRow: who comes next, and whether its session lives. It reads a new snapshot: at READ COMMITTED every
-- statement has its own.
-- name: NextWaiter :one
SELECT w.ticket, w.session_id, w.host, w.thread, w.attempt, w.lease, w.metadata,
       CAST(COALESCE(s.dead = 0 AND h.expires_at > (SELECT c.now_us FROM dblock_clock c), 0) AS SIGNED) AS alive
  FROM dblock_waiters w FORCE INDEX (PRIMARY)
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id
 WHERE w.name = sqlc.arg(name) ORDER BY w.ticket LIMIT 1;

-- After LockRow. One row by its whole key: a range would wait for the neighbours' rows.
-- name: DropWaiter :exec
DELETE FROM dblock_waiters WHERE name = sqlc.arg(name) AND ticket = sqlc.arg(ticket);

-- After LockRow.
-- name: FindWaiter :one
SELECT ticket FROM dblock_waiters WHERE attempt = sqlc.arg(attempt) AND name = sqlc.arg(name);

-- After LockRow, before DropWaiter.
-- name: CountDown :exec
UPDATE dblock_locks SET waiters = GREATEST(waiters - 1, 0) WHERE name = sqlc.arg(name);
