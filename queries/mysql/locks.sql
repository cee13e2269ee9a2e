-- For a name without a row. It grants nothing: inserted values are older than the row by the time that the statement
-- took, and meanwhile another row of the name may have been made, granted, and purged. If the connection converts
-- texts, the name would be another lock: the statement fails (see settings.go). 0: there is a row.
-- name: MakeRow :execrows
INSERT INTO dblock_locks (name, host, thread, token, acquired_at, metadata)
SELECT IF(@@character_set_client IN (@@character_set_connection, 'binary'), sqlc.arg(name), NULL), '', '', c.now_us, c.now_us, ''
  FROM dblock_clock c
ON DUPLICATE KEY UPDATE name = dblock_locks.name;

-- Every change of holder begins with this statement, and decides in a later statement of the same transaction, or by
-- the time, which is that of the statement. A row that another transaction has locked is not returned: the application
-- may have locked it for long, and a wait for a row has no limit that could be set with the statement.
-- name: LockRow :one
SELECT COALESCE(session_id, '') AS session_id, host, thread, attempt, token, first_token, last_token, acquired_at, expires_at, waiters,
       shared_units, capacity, mixed, rests_until, first_ticket, next_ticket, metadata, asked,
       CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us
  FROM dblock_locks WHERE name = sqlc.arg(name) FOR UPDATE SKIP LOCKED;

-- LockRow that waits for a locked row in the server's order, for a second: on MariaDB by a prefix, a comment to others.
-- name: LockRowInTurn :one
/*M! SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ SELECT /*+ MAX_EXECUTION_TIME(1000) */ COALESCE(session_id, '') AS session_id, host, thread,
       attempt, token, first_token, last_token, acquired_at, expires_at, waiters,
       shared_units, capacity, mixed, rests_until, first_ticket, next_ticket, metadata, asked,
       CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us
  FROM dblock_locks WHERE name = sqlc.arg(name) FOR UPDATE;

-- After LockRow: the row after a transition. unseen: whether the session must be notified of its grant; null leaves it
-- unchanged. The insert id shows that there was a row, even if it did not change.
-- name: WriteRow :exec
UPDATE dblock_locks SET
       session_id = CAST(sqlc.narg(session) AS CHAR), host = sqlc.arg(host), thread = sqlc.arg(thread), attempt = sqlc.arg(attempt),
       token = sqlc.arg(token), first_token = sqlc.arg(first_token), last_token = sqlc.arg(last_token),
       acquired_at = sqlc.arg(acquired_at), expires_at = sqlc.narg(expires_at), rests_until = sqlc.arg(rests_until),
       metadata = sqlc.arg(metadata), asked = sqlc.narg(asked), shared_units = sqlc.arg(shared_units),
       capacity = sqlc.arg(capacity), mixed = sqlc.arg(mixed), waiters = sqlc.arg(waiters),
       first_ticket = sqlc.arg(first_ticket), next_ticket = LAST_INSERT_ID(sqlc.arg(next_ticket)), unseen = COALESCE(CAST(sqlc.narg(unseen) AS SIGNED), unseen)
 WHERE name = sqlc.arg(name);

-- LockRow for many names, in the order of their keys, with the time. It waits for no row.
-- name: LockRows :many
SELECT name, COALESCE(session_id, '') AS session_id, host, thread, attempt, token, first_token, last_token, expires_at, waiters, shared_units, capacity, mixed, rests_until,
       CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us
  FROM dblock_locks FORCE INDEX (PRIMARY) WHERE name IN (sqlc.slice(names)) ORDER BY name FOR UPDATE SKIP LOCKED;

-- Takes a free name on MySQL, in one statement and one commit. It never waits: a row that another transaction has
-- locked is not found, and not taken. Everything is decided by the lock row alone. The token is computed from the
-- existing row, under its lock, and returned as the insert id; 0: not taken. Without a lease, null makes the sum null.
-- LIMIT keeps MySQL from merging the derived table, and waiting. The index is forced, here and below, wherever another
-- one could serve: a statement locks the rows that it scans.
-- name: TakeLock :execlastid
UPDATE (SELECT r.name, GREATEST(r.token + 1, (SELECT c.now_us FROM dblock_clock c)) AS token FROM dblock_locks r FORCE INDEX (PRIMARY)
         WHERE r.name = sqlc.arg(name) AND r.session_id IS NULL AND r.waiters = 0 AND r.shared_units = 0
           AND r.rests_until <= (SELECT c.now_us FROM dblock_clock c)
         LIMIT 1 FOR UPDATE SKIP LOCKED) s
  STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = s.name
   SET l.token = LAST_INSERT_ID(s.token), l.first_token = s.token, l.last_token = s.token,
       l.session_id = sqlc.arg(session), l.host = sqlc.arg(host), l.thread = sqlc.arg(thread), l.attempt = sqlc.arg(attempt),
       l.acquired_at = (SELECT c.now_us FROM dblock_clock c),
       l.expires_at = (SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.narg(lease) AS SIGNED),
       l.rests_until = COALESCE((SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.narg(min_hold) AS SIGNED), l.rests_until),
       l.metadata = sqlc.arg(metadata);

-- TakeLock on MariaDB, which writes the values of an UPDATE of several tables to a file if there is a column of text. A
-- prefix tells the statement not to wait. SET runs from left to right, or, if MariaDB is configured so, at once:
-- therefore token is last.
-- name: TakeRow :execlastid
/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ UPDATE dblock_locks FORCE INDEX (PRIMARY) SET
       first_token = GREATEST(token + 1, (SELECT c.now_us FROM dblock_clock c)), last_token = GREATEST(token + 1, (SELECT c.now_us FROM dblock_clock c)),
       token = LAST_INSERT_ID(GREATEST(token + 1, (SELECT c.now_us FROM dblock_clock c))),
       session_id = sqlc.arg(session), host = sqlc.arg(host), thread = sqlc.arg(thread), attempt = sqlc.arg(attempt),
       acquired_at = (SELECT c.now_us FROM dblock_clock c),
       expires_at = (SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.narg(lease) AS SIGNED),
       rests_until = COALESCE((SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.narg(min_hold) AS SIGNED), rests_until),
       metadata = sqlc.arg(metadata)
 WHERE name = sqlc.arg(name) AND session_id IS NULL AND waiters = 0 AND shared_units = 0
   AND rests_until <= (SELECT c.now_us FROM dblock_clock c);

-- Releases a name without waiters.
-- name: ReleaseIdle :execrows
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET
       session_id = NULL, host = '', thread = '', attempt = '',
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = NULL, metadata = '', asked = NULL, unseen = 0
 WHERE name = sqlc.arg(name) AND session_id = sqlc.arg(session) AND last_token = sqlc.arg(token) AND waiters = 0;

-- name: Overdue :many
SELECT name, COALESCE(session_id, '') AS session_id, last_token FROM dblock_locks
 WHERE expires_at <= (SELECT c.now_us FROM dblock_clock c) AND session_id IS NOT NULL ORDER BY expires_at LIMIT ?;

-- name: OverdueShares :many
SELECT name, session_id, token, units FROM dblock_shares
 WHERE expires_at <= (SELECT c.now_us FROM dblock_clock c) ORDER BY expires_at LIMIT ?;

-- The names for which LockIdle may find an idle row.
-- name: PurgePage :many
SELECT name, CAST(session_id IS NULL AND waiters = 0 AND shared_units = 0
       AND acquired_at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(idle) AS SIGNED) AS SIGNED) AS idle
  FROM dblock_locks WHERE name > sqlc.arg(after) ORDER BY name LIMIT ?;

-- The idle rows among some names that no transaction has locked. A row with a token ahead of the clock stays, so that
-- the next token is higher.
-- name: LockIdle :many
SELECT name FROM dblock_locks FORCE INDEX (PRIMARY)
 WHERE name IN (sqlc.slice(names))
   AND session_id IS NULL AND waiters = 0 AND shared_units = 0
   AND rests_until < (SELECT c.now_us FROM dblock_clock c)
   AND acquired_at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(idle) AS SIGNED)
   AND token < (SELECT c.now_us FROM dblock_clock c)
   FOR UPDATE SKIP LOCKED;

-- After LockIdle. One row by its key: a DELETE of several reads the whole table, and waits for each of its rows, if the
-- optimizer finds that cheaper, and takes no hint.
-- name: DropLock :exec
DELETE FROM dblock_locks WHERE name = sqlc.arg(name);

-- After LockRow: releases several names without waiters that the session holds. It changes each of them.
-- name: FreeLocks :execrows
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET
       session_id = NULL, host = '', thread = '', attempt = '',
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = NULL, metadata = '', asked = NULL, unseen = 0
 WHERE name IN (sqlc.slice(names));

-- After LockRow: the totals of a name's places and shares. It always returns a row.
-- name: Tally :one
SELECT q.waiters, q.lowest, q.highest, s.units, s.smallest, s.largest
  FROM (SELECT CAST(COALESCE(SUM(w.members), 0) AS SIGNED) AS waiters, CAST(COALESCE(MIN(w.ticket), 0) AS SIGNED) AS lowest,
               CAST(COALESCE(MAX(w.ticket), 0) AS SIGNED) AS highest
          FROM dblock_waiters w WHERE w.name = sqlc.arg(name)) q
 CROSS JOIN (SELECT CAST(COALESCE(SUM(r.units), 0) AS SIGNED) AS units, CAST(COALESCE(MIN(r.capacity), 0) AS SIGNED) AS smallest,
               CAST(COALESCE(MAX(r.capacity), 0) AS SIGNED) AS largest
          FROM dblock_shares r WHERE r.name = sqlc.arg(name)) s;

-- Names whose rows disagree with their places and shares, among the names that have any, and those from after to upto
-- ('': the last).
-- name: Miscounted :many
SELECT l.name
  FROM (SELECT w.name FROM dblock_waiters w UNION SELECT r.name FROM dblock_shares r
         UNION SELECT n.name FROM dblock_locks n WHERE n.name > sqlc.arg(after) AND (sqlc.arg(upto) = '' OR n.name <= sqlc.arg(upto))) p
  JOIN dblock_locks l ON l.name = p.name
 WHERE l.waiters <> COALESCE((SELECT SUM(w.members) FROM dblock_waiters w WHERE w.name = l.name), 0)
    OR l.shared_units <> COALESCE((SELECT SUM(r.units) FROM dblock_shares r WHERE r.name = l.name), 0)
    OR l.next_ticket <= COALESCE((SELECT MAX(w.ticket) FROM dblock_waiters w WHERE w.name = l.name), 0)
 ORDER BY l.name LIMIT ?;
