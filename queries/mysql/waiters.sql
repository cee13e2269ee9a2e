-- After LockRow: a place that a transition has added.
-- name: AddWaiter :exec
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, capacity, min_hold, members)
VALUES (sqlc.arg(name), sqlc.arg(ticket), sqlc.arg(session), sqlc.arg(host), sqlc.arg(thread), sqlc.arg(attempt), sqlc.arg(lease), sqlc.arg(metadata),
       sqlc.arg(enqueued_at), sqlc.arg(units), sqlc.arg(capacity), sqlc.arg(min_hold), sqlc.arg(members));

-- After LockRow: the next places in the queue after a ticket, and whether their sessions live. At READ COMMITTED every
-- statement has a new snapshot. The last row, without a session, proves that the list was not cut short, as in every
-- list that ends with such a row.
-- name: NextWaiters :many
(SELECT w.ticket, w.session_id, w.host, w.thread, w.attempt, w.lease, w.metadata, w.enqueued_at, w.units, w.capacity, w.min_hold, w.members,
       CAST(COALESCE(s.dead = 0 AND h.expires_at > (SELECT c.now_us FROM dblock_clock c), 0) AS SIGNED) AS alive
  FROM dblock_waiters w FORCE INDEX (PRIMARY)
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id
 WHERE w.name = sqlc.arg(name) AND w.ticket > sqlc.arg(after) ORDER BY w.ticket LIMIT ?)
UNION ALL
SELECT 0, _ascii'', '', '', _ascii'', 0, '', 0, 0, 0, 0, 0, 0;

-- After LockRow. One row by its whole key: a range would wait for the neighbours' rows. So would a list of keys (IN):
-- MySQL reads a small table from end to end for it, even if a DELETE of several tables forces the index (MySQL 9.7).
-- Package mysql deletes several rows by a join with JSON_TABLE, which finds each by its whole key.
-- name: DropWaiter :exec
DELETE FROM dblock_waiters WHERE name = sqlc.arg(name) AND ticket = sqlc.arg(ticket);

-- After LockRow: a place that has grown.
-- name: SetMembers :execrows
UPDATE dblock_waiters SET members = sqlc.arg(members) WHERE name = sqlc.arg(name) AND ticket = sqlc.arg(ticket);

-- After LockRow.
-- name: FindWaiter :one
SELECT ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, capacity, min_hold, members
  FROM dblock_waiters WHERE attempt = sqlc.arg(attempt) AND name = sqlc.arg(name);
