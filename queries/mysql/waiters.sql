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

-- TakeTicket and AddWaiter in one statement and one commit, of a request for the whole of a name that
-- somebody holds: with a place that HandToHead has set aside, and that becomes the last in the queue.
-- It waits for the name's row, and takes the ticket from the row as it is then. s is the row before
-- the change: the order in which two tables are set is not defined. 0: the name is not held, or the
-- place is gone.
-- name: JoinQueue :execrows
UPDATE (SELECT r.name, r.next_ticket, r.waiters, r.capacity FROM dblock_locks r FORCE INDEX (PRIMARY)
         WHERE r.name = sqlc.arg(name) AND r.session_id IS NOT NULL LIMIT 1 FOR UPDATE) s
  STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = s.name
  STRAIGHT_JOIN dblock_waiters w FORCE INDEX (PRIMARY) ON w.name = ''
   SET l.next_ticket = s.next_ticket + 1, l.waiters = s.waiters + 1, l.capacity = IF(s.waiters = 0, 0, s.capacity),
       w.name = s.name, w.ticket = s.next_ticket, w.session_id = sqlc.arg(session), w.host = sqlc.arg(host), w.thread = sqlc.arg(thread),
       w.attempt = sqlc.arg(attempt), w.lease = CAST(sqlc.arg(lease) AS SIGNED), w.metadata = sqlc.arg(metadata),
       w.enqueued_at = (SELECT c.now_us FROM dblock_clock c), w.units = 0, w.min_hold = CAST(sqlc.arg(min_hold) AS SIGNED)
 WHERE w.ticket = CAST(sqlc.arg(spare) AS SIGNED);

-- The release of a whole name to a waiter that NextWaiters found to be the first, without a row
-- locked: GiveLock and DropWaiter in one statement and one commit. It waits for the name's row, and
-- decides by it as it is then. Nobody comes before the waiter as long as its place is there: tickets
-- rise in the order of commits. An UPDATE deletes nothing: the place is set aside, under the empty
-- name, which no lock has, and without a session, for JoinQueue. The token travels back as the insert
-- id; 0: not done.
-- name: HandToHead :execlastid
UPDATE (SELECT r.name FROM dblock_locks r FORCE INDEX (PRIMARY)
         WHERE r.name = sqlc.arg(name) AND r.session_id = sqlc.arg(holder) AND r.token = sqlc.arg(token)
           AND r.rests_until <= (SELECT c.now_us FROM dblock_clock c)
         LIMIT 1 FOR UPDATE) s
  STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = s.name
  STRAIGHT_JOIN dblock_waiters w FORCE INDEX (PRIMARY) ON w.name = s.name
   SET l.token = LAST_INSERT_ID(GREATEST(l.token + 1, (SELECT c.now_us FROM dblock_clock c))),
       l.session_id = sqlc.arg(session), l.host = sqlc.arg(host), l.thread = sqlc.arg(thread), l.holds = 1, l.attempt = sqlc.arg(attempt),
       l.acquired_at = (SELECT c.now_us FROM dblock_clock c), l.expires_at = NULL, l.metadata = sqlc.arg(metadata), l.asked = NULL,
       l.waiters = GREATEST(l.waiters - 1, 0), l.handed = sqlc.arg(handed),
       w.name = '', w.ticket = CAST(sqlc.arg(spare) AS SIGNED), w.session_id = '', w.attempt = CAST(sqlc.arg(spare) AS CHAR), w.metadata = '',
       w.enqueued_at = (SELECT c.now_us FROM dblock_clock c)
 WHERE w.ticket = CAST(sqlc.arg(ticket) AS SIGNED);

-- Places that were set aside by clients that did not come to use or drop them.
-- name: Spares :many
SELECT ticket FROM dblock_waiters
 WHERE name = '' AND enqueued_at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(idle) AS SIGNED) LIMIT ?;
