-- After LockRow, which did not find the name free: takes a ticket from its row. 0 where there is no
-- row.
-- name: TakeTicket :execlastid
UPDATE dblock_locks SET next_ticket = LAST_INSERT_ID(next_ticket) + 1, waiters = waiters + 1, capacity = sqlc.arg(capacity)
 WHERE name = sqlc.arg(name);

-- After TakeTicket.
-- name: AddWaiter :exec
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, min_hold)
SELECT sqlc.arg(name), sqlc.arg(ticket), sqlc.arg(session), sqlc.arg(host), sqlc.arg(thread), sqlc.arg(attempt), sqlc.arg(lease), sqlc.arg(metadata), c.now_us,
       sqlc.arg(units), sqlc.arg(min_hold)
  FROM dblock_clock c;

-- After LockRow: the next places in the queue after a ticket, and whether their sessions live. It
-- reads a new snapshot: at READ COMMITTED every statement has its own.
-- name: NextWaiters :many
SELECT w.ticket, w.session_id, w.host, w.thread, w.attempt, w.lease, w.metadata, w.units, w.min_hold,
       CAST(COALESCE(s.dead = 0 AND h.expires_at > (SELECT c.now_us FROM dblock_clock c), 0) AS SIGNED) AS alive
  FROM dblock_waiters w FORCE INDEX (PRIMARY)
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id
 WHERE w.name = sqlc.arg(name) AND w.ticket > sqlc.arg(after) ORDER BY w.ticket LIMIT ?;

-- After LockRow. One row by its whole key: a range would wait for the neighbours' rows, and so
-- would a list of keys, for which MySQL reads a small table from end to end, also where a DELETE of
-- several tables forces the index (seen on 9.7).
-- name: DropWaiter :exec
DELETE FROM dblock_waiters WHERE name = sqlc.arg(name) AND ticket = sqlc.arg(ticket);

-- After LockRow.
-- name: FindWaiter :one
SELECT ticket, session_id FROM dblock_waiters WHERE attempt = sqlc.arg(attempt) AND name = sqlc.arg(name);

-- After LockRow.
-- name: FindPlaces :many
SELECT ticket FROM dblock_waiters WHERE name = sqlc.arg(name) AND session_id = sqlc.arg(session) AND attempt IN (sqlc.slice(attempts));

-- name: DropPlaces :exec
DELETE FROM dblock_waiters WHERE name = sqlc.arg(name) AND ticket IN (sqlc.slice(tickets));

-- After LockRow, before DropWaiter or DropPlaces.
-- name: CountWaiters :exec
UPDATE dblock_locks SET waiters = sqlc.arg(waiters) WHERE name = sqlc.arg(name);
