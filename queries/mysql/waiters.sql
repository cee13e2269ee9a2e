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

-- After LockRow. One row by its whole key: a range would wait for the neighbours' rows. So would a list of keys: MySQL
-- reads a small table from end to end for it, even if a DELETE of several tables forces the index (MySQL 9.7).
-- name: DropWaiter :exec
DELETE FROM dblock_waiters WHERE name = sqlc.arg(name) AND ticket = sqlc.arg(ticket);

-- After LockRow.
-- name: FindWaiter :one
SELECT ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, capacity, min_hold, members
  FROM dblock_waiters WHERE attempt = sqlc.arg(attempt) AND name = sqlc.arg(name);

-- The first half of a place for a request for the whole of a held name, without LockRow: it waits for the name's row,
-- in the server's order, and AddPlace follows in the same transaction. 0: the name is not held.
-- name: TakeTicket :execlastid
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET
       capacity = IF(waiters = 0, 0, capacity), waiters = waiters + CAST(sqlc.arg(members) AS SIGNED),
       next_ticket = LAST_INSERT_ID(next_ticket) + 1
 WHERE name = sqlc.arg(name) AND session_id IS NOT NULL;

-- After TakeTicket.
-- name: AddPlace :exec
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, capacity, min_hold, members)
VALUES (sqlc.arg(name), sqlc.arg(ticket), sqlc.arg(session), sqlc.arg(host), sqlc.arg(thread), sqlc.arg(attempt), sqlc.arg(lease), sqlc.arg(metadata),
       (SELECT c.now_us FROM dblock_clock c), 0, 0, sqlc.arg(min_hold), sqlc.arg(members));

-- The release of a whole name to the first place that NextWaiters found, without LockRow; DropWaiter follows in the
-- same transaction. It waits for the name's row, and decides by its newest version. While the place exists and
-- first_ticket is unchanged, no other place comes first: tickets rise in the order of commits. The last token is
-- returned as the insert id; 0: not done. SET as in TakeRow.
-- name: HandToHead :execlastid
UPDATE dblock_locks l FORCE INDEX (PRIMARY) STRAIGHT_JOIN dblock_waiters w FORCE INDEX (PRIMARY) ON w.name = l.name
   SET l.first_token = GREATEST(l.token + 1, (SELECT c.now_us FROM dblock_clock c)),
       l.last_token = GREATEST(l.token + 1, (SELECT c.now_us FROM dblock_clock c)) + CAST(sqlc.arg(members) AS SIGNED) - 1,
       l.token = LAST_INSERT_ID(GREATEST(l.token + 1, (SELECT c.now_us FROM dblock_clock c)) + CAST(sqlc.arg(members) AS SIGNED) - 1),
       l.session_id = sqlc.arg(session), l.host = sqlc.arg(host), l.thread = sqlc.arg(thread), l.attempt = sqlc.arg(attempt),
       l.acquired_at = (SELECT c.now_us FROM dblock_clock c), l.expires_at = NULL, l.rests_until = 0, l.metadata = sqlc.arg(metadata), l.asked = NULL,
       l.waiters = GREATEST(l.waiters - CAST(sqlc.arg(members) AS SIGNED), 0), l.first_ticket = CAST(sqlc.arg(ticket) AS SIGNED) + 1,
       l.unseen = sqlc.arg(unseen)
 WHERE l.name = sqlc.arg(name) AND l.session_id = sqlc.arg(holder) AND l.last_token = sqlc.arg(token)
   AND l.rests_until <= (SELECT c.now_us FROM dblock_clock c) AND l.first_ticket <= CAST(sqlc.arg(ticket) AS SIGNED)
   AND w.ticket = CAST(sqlc.arg(ticket) AS SIGNED);
