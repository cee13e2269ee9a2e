-- After LockRow, which did not find the name free: takes so many tickets from its row, of which the
-- first is returned. 0 where there is no row.
-- name: TakeTickets :execlastid
UPDATE dblock_locks SET
       next_ticket = LAST_INSERT_ID(next_ticket) + CAST(sqlc.arg(places) AS SIGNED), waiters = waiters + CAST(sqlc.arg(places) AS SIGNED),
       capacity = sqlc.arg(capacity)
 WHERE name = sqlc.arg(name);

-- After TakeTickets.
-- name: AddWaiter :exec
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, capacity, min_hold, passable)
SELECT sqlc.arg(name), sqlc.arg(ticket), sqlc.arg(session), sqlc.arg(host), sqlc.arg(thread), sqlc.arg(attempt), sqlc.arg(lease), sqlc.arg(metadata), c.now_us,
       sqlc.arg(units), sqlc.arg(capacity), sqlc.arg(min_hold), sqlc.arg(passable)
  FROM dblock_clock c;

-- After LockRow: the next places in the queue after a ticket, and whether their sessions live. It
-- reads a new snapshot: at READ COMMITTED every statement has its own. gone rises whenever a place is
-- given up, and never else: while it stays, all of these places do.
-- name: NextWaiters :many
SELECT w.ticket, w.session_id, w.host, w.thread, w.attempt, w.lease, w.metadata, w.units, w.capacity, w.min_hold, w.passable, w.token,
       CAST(COALESCE(s.dead = 0 AND h.expires_at > (SELECT c.now_us FROM dblock_clock c), 0) AS SIGNED) AS alive,
       CAST(l.next_ticket - l.waiters AS SIGNED) AS gone
  FROM dblock_locks l FORCE INDEX (PRIMARY)
  STRAIGHT_JOIN dblock_waiters w FORCE INDEX (PRIMARY) ON w.name = l.name
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id
 WHERE l.name = sqlc.arg(name) AND w.ticket > sqlc.arg(after) ORDER BY w.ticket LIMIT ?;

-- After GiveLock, which has reserved their tokens: these places keep them, as members of the run, in
-- the order of the list. Here and below places are found by their whole keys, as in DropWaiter, and
-- are read before: an UPDATE locks what it reads of another instance of its table.
-- name: MarkMembers :exec
UPDATE dblock_waiters FORCE INDEX (PRIMARY) SET token = CAST(sqlc.arg(first_token) AS SIGNED) + FIND_IN_SET(ticket, sqlc.arg(list))
 WHERE name = sqlc.arg(name) AND ticket IN (sqlc.slice(tickets));

-- After LockRow, which found a run: its members, but the one that the row shows. They have the first
-- places of the queue; LIMIT keeps a long queue from being read.
-- name: Members :many
SELECT m.ticket, m.host, m.thread, m.attempt, m.token
  FROM (SELECT x.ticket, x.host, x.thread, x.attempt, x.token FROM dblock_waiters x FORCE INDEX (PRIMARY)
         WHERE x.name = sqlc.arg(name) ORDER BY x.ticket LIMIT 64) m
 WHERE m.token > 0 ORDER BY m.token;

-- After Members: they wait again where they stand.
-- name: ResetMembers :exec
UPDATE dblock_waiters FORCE INDEX (PRIMARY) SET token = 0, passable = IF(CAST(sqlc.arg(singly) AS SIGNED) = 1, 0, passable)
 WHERE name = sqlc.arg(name) AND ticket IN (sqlc.slice(tickets));

-- After LockRow, which found a run: the row shows a member of it from now on, as the first of what is
-- left of the run. SET as in GiveLock.
-- name: ShowMember :exec
UPDATE dblock_locks SET
       acquired_at = IF(attempt = sqlc.arg(attempt), acquired_at, (SELECT c.now_us FROM dblock_clock c)),
       host = sqlc.arg(host), thread = sqlc.arg(thread), holds = 1, attempt = sqlc.arg(attempt),
       first_token = sqlc.arg(first_token), last_token = sqlc.arg(last_token), waiters = sqlc.arg(waiters), handed = sqlc.arg(handed)
 WHERE name = sqlc.arg(name);

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
SELECT ticket FROM dblock_waiters FORCE INDEX (dblock_waiters_attempt)
 WHERE name = sqlc.arg(name) AND session_id = sqlc.arg(session) AND attempt IN (sqlc.slice(attempts));

-- After LockRow, before places are dropped.
-- name: CountWaiters :exec
UPDATE dblock_locks SET waiters = sqlc.arg(waiters) WHERE name = sqlc.arg(name);

-- TakeTickets of requests for the whole of a name that somebody holds, without LockRow: it waits
-- for the name's row. 0: the name is not held.
-- name: TakeTicketsOfHeld :execlastid
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET
       capacity = IF(waiters = 0, 0, capacity), waiters = waiters + CAST(sqlc.arg(places) AS SIGNED),
       next_ticket = LAST_INSERT_ID(next_ticket) + CAST(sqlc.arg(places) AS SIGNED)
 WHERE name = sqlc.arg(name) AND session_id IS NOT NULL;

-- TakeTickets and AddWaiter in one statement and one commit, of a request for the whole of a name that
-- somebody holds: with a place that HandToHead has set aside, and that becomes the last in the queue.
-- It waits for the name's row, and takes the ticket from the row as it is then. s is the row before
-- the change: the order in which two tables are set is not defined. 0: the name is not held, or the
-- place is gone. Here and in HandToHead the first table is the one with columns of text that are set,
-- and is named once: that one MariaDB changes at once. What it sets in others it keeps until the end,
-- in a file if there is text.
-- name: JoinQueue :execrows
UPDATE dblock_waiters w FORCE INDEX (PRIMARY)
  STRAIGHT_JOIN (SELECT r.name, r.next_ticket, r.waiters, r.capacity FROM dblock_locks r FORCE INDEX (PRIMARY)
         WHERE r.name = sqlc.arg(name) AND r.session_id IS NOT NULL LIMIT 1 FOR UPDATE) s
  STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = s.name
   SET l.next_ticket = s.next_ticket + 1, l.waiters = s.waiters + 1, l.capacity = IF(s.waiters = 0, 0, s.capacity),
       w.name = s.name, w.ticket = s.next_ticket, w.session_id = sqlc.arg(session), w.host = sqlc.arg(host), w.thread = sqlc.arg(thread),
       w.attempt = sqlc.arg(attempt), w.lease = CAST(sqlc.arg(lease) AS SIGNED), w.metadata = sqlc.arg(metadata),
       w.enqueued_at = (SELECT c.now_us FROM dblock_clock c), w.units = 0, w.min_hold = CAST(sqlc.arg(min_hold) AS SIGNED),
       w.passable = CAST(sqlc.arg(passable) AS SIGNED)
 WHERE w.name = '' AND w.ticket = CAST(sqlc.arg(spare) AS SIGNED);

-- The release of a whole name to a waiter that NextWaiters found to be the first, without a row
-- locked: GiveLock and DropWaiter in one statement and one commit. It waits for the name's row, and
-- decides by it as it is then. Nobody comes before the waiter as long as its place is there: tickets
-- rise in the order of commits. An UPDATE deletes nothing: the place is set aside, under the empty
-- name, which no lock has, and without a session, for JoinQueue. The token travels back as the insert
-- id; 0: not done. SET as in TakeRow: nothing of w is made of what is set in l.
-- name: HandToHead :execlastid
UPDATE dblock_locks l FORCE INDEX (PRIMARY) STRAIGHT_JOIN dblock_waiters w FORCE INDEX (PRIMARY) ON w.name = l.name
   SET l.first_token = GREATEST(l.token + 1, (SELECT c.now_us FROM dblock_clock c)), l.last_token = GREATEST(l.token + 1, (SELECT c.now_us FROM dblock_clock c)),
       l.token = LAST_INSERT_ID(GREATEST(l.token + 1, (SELECT c.now_us FROM dblock_clock c))),
       l.session_id = sqlc.arg(session), l.host = sqlc.arg(host), l.thread = sqlc.arg(thread), l.holds = 1, l.attempt = sqlc.arg(attempt),
       l.acquired_at = (SELECT c.now_us FROM dblock_clock c), l.expires_at = NULL, l.metadata = sqlc.arg(metadata), l.asked = NULL,
       l.waiters = GREATEST(l.waiters - 1, 0), l.handed = sqlc.arg(handed),
       w.name = '', w.ticket = CAST(sqlc.arg(spare) AS SIGNED), w.session_id = '', w.attempt = CAST(sqlc.arg(spare) AS CHAR),
       w.enqueued_at = (SELECT c.now_us FROM dblock_clock c)
 WHERE l.name = sqlc.arg(name) AND l.session_id = sqlc.arg(holder) AND l.last_token = sqlc.arg(token)
   AND l.rests_until <= (SELECT c.now_us FROM dblock_clock c) AND w.ticket = CAST(sqlc.arg(ticket) AS SIGNED);

-- Places that were set aside by clients that did not come to use or drop them.
-- name: Spares :many
SELECT ticket FROM dblock_waiters
 WHERE name = '' AND enqueued_at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(idle) AS SIGNED) LIMIT ?;
