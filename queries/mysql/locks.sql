-- The acquire of a free name, in one statement and one commit. It decides by the lock row alone: that row it sees
-- anew after a wait, and nothing else. The token is computed from the row as it is, never from VALUES(), and travels
-- back as the insert id; 0: not taken. SET runs left to right, so session_id, which every condition reads, comes last.
-- The SELECT's own LAST_INSERT_ID runs first and answers for the insert. No lease: null, and so is the sum.
-- name: TakeLock :execlastid
INSERT INTO dblock_locks (name, session_id, host, thread, holds, attempt, token, acquired_at, expires_at, metadata)
SELECT sqlc.arg(name), sqlc.arg(session), sqlc.arg(host), sqlc.arg(thread), 1, sqlc.arg(attempt), LAST_INSERT_ID(c.now_us), c.now_us,
       c.now_us + CAST(sqlc.narg(lease) AS SIGNED), sqlc.arg(metadata)
  FROM dblock_clock c
ON DUPLICATE KEY UPDATE
       token = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0,
                  LAST_INSERT_ID(GREATEST(dblock_locks.token + 1, c.now_us)), dblock_locks.token + LAST_INSERT_ID(0)),
       host = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0, sqlc.arg(host), dblock_locks.host),
       thread = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0, sqlc.arg(thread), dblock_locks.thread),
       holds = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0, 1, dblock_locks.holds),
       attempt = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0, sqlc.arg(attempt), dblock_locks.attempt),
       acquired_at = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0, c.now_us, dblock_locks.acquired_at),
       expires_at = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0,
                       c.now_us + CAST(sqlc.narg(lease) AS SIGNED), dblock_locks.expires_at),
       metadata = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0, sqlc.arg(metadata), dblock_locks.metadata),
       session_id = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0, sqlc.arg(session), dblock_locks.session_id);

-- Every change of holder begins with this, and decides in a later statement of the same transaction. A row that another
-- transaction has locked is not returned: it may be the application's, and locked for long, and a wait for a row has no
-- limit that could be set with the statement.
-- name: LockRow :one
SELECT COALESCE(session_id, '') AS session_id, host, thread, attempt, token, expires_at, waiters FROM dblock_locks WHERE name = sqlc.arg(name) FOR UPDATE SKIP LOCKED;

-- After LockRow or JoinQueue: the same as TakeLock. The index is forced, here and below, wherever another one could
-- serve: what a statement scans, it locks.
-- name: TakeLocked :execlastid
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET
       token = LAST_INSERT_ID(GREATEST(token + 1, (SELECT c.now_us FROM dblock_clock c))),
       session_id = sqlc.arg(session), host = sqlc.arg(host), thread = sqlc.arg(thread), holds = 1, attempt = sqlc.arg(attempt),
       acquired_at = (SELECT c.now_us FROM dblock_clock c),
       expires_at = (SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.narg(lease) AS SIGNED),
       metadata = sqlc.arg(metadata)
 WHERE name = sqlc.arg(name) AND session_id IS NULL AND waiters = 0;

-- After LockRow: gives the lock to somebody, whoever has it.
-- name: GiveLock :execlastid
UPDATE dblock_locks SET
       token = LAST_INSERT_ID(GREATEST(token + 1, (SELECT c.now_us FROM dblock_clock c))),
       session_id = sqlc.arg(session), host = sqlc.arg(host), thread = sqlc.arg(thread), holds = 1, attempt = sqlc.arg(attempt),
       acquired_at = (SELECT c.now_us FROM dblock_clock c),
       expires_at = (SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.narg(lease) AS SIGNED),
       metadata = sqlc.arg(metadata), waiters = sqlc.arg(waiters), handed = sqlc.arg(handed)
 WHERE name = sqlc.arg(name);

-- After LockRow: gives the lock to nobody. Nobody waits.
-- name: FreeLock :exec
UPDATE dblock_locks SET
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '',
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = NULL, metadata = '', waiters = 0, handed = 0
 WHERE name = sqlc.arg(name);

-- The release when nobody waits.
-- name: ReleaseIdle :execrows
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '',
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = NULL, metadata = '', handed = 0
 WHERE name = sqlc.arg(name) AND session_id = sqlc.arg(session) AND token = sqlc.arg(token) AND waiters = 0;

-- Rows that do not change are not counted: the insert id says that there was one. holds is never 0.
-- name: SetHolds :execlastid
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET holds = LAST_INSERT_ID(CAST(sqlc.arg(holds) AS SIGNED))
 WHERE name = sqlc.arg(name) AND session_id = sqlc.arg(session) AND token = sqlc.arg(token);

-- One row for each name and each place that the session has in its queue.
-- name: Look :many
SELECT l.name, COALESCE(l.session_id, '') AS session_id, l.host, l.thread, l.attempt, l.token, l.acquired_at, l.waiters, l.expires_at,
       CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us,
       CAST(COALESCE(IF(s.dead = 0, h.expires_at, 0), 0) AS SIGNED) AS session_expires_at,
       w.attempt AS queued
  FROM dblock_locks l
  LEFT JOIN dblock_sessions s ON s.id = l.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
  LEFT JOIN dblock_waiters w ON w.name = l.name AND w.session_id = sqlc.arg(session)
 WHERE l.name IN (sqlc.slice(names));

-- name: Overdue :many
SELECT name, COALESCE(session_id, '') AS session_id, token FROM dblock_locks
 WHERE expires_at <= (SELECT c.now_us FROM dblock_clock c) AND session_id IS NOT NULL ORDER BY expires_at LIMIT ?;

-- name: Page :many
SELECT name FROM dblock_locks WHERE name > sqlc.arg(after) ORDER BY name LIMIT ?;

-- Of a page, the idle rows that nobody is touching. A token ahead of the clock stays, so that the next one is higher.
-- name: LockIdle :many
SELECT name FROM dblock_locks FORCE INDEX (PRIMARY)
 WHERE name > sqlc.arg(after) AND name <= sqlc.arg(last)
   AND session_id IS NULL AND waiters = 0
   AND acquired_at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(idle) AS SIGNED)
   AND token < (SELECT c.now_us FROM dblock_clock c)
   FOR UPDATE SKIP LOCKED;

-- After LockIdle. One row by its key: a DELETE of several reads the whole table, and waits for every row of it, where the
-- optimizer finds that cheaper, and takes no hint.
-- name: DropLock :exec
DELETE FROM dblock_locks WHERE name = sqlc.arg(name);

-- The locks that others gave to the session and of which it has not said that it knows.
-- name: Handed :many
SELECT name, attempt, token, waiters, expires_at FROM dblock_locks WHERE session_id = sqlc.arg(session) AND handed = 1;

-- Sleeps unless there is such a lock beside those in the list. Check and sleep are one statement, so that no
-- KILL QUERY falls between them. 1: the sleep was interrupted.
-- name: SleepUntilHanded :one
SELECT CAST(IF(EXISTS(
           SELECT l.name FROM dblock_locks l
            WHERE l.session_id = sqlc.arg(session) AND l.handed = 1 AND FIND_IN_SET(l.attempt, sqlc.arg(known)) = 0
       ), 0, SLEEP(sqlc.arg(seconds))) AS SIGNED) AS interrupted;

-- The same on MariaDB, where it is a wait at a gate: a named lock that another connection holds. 0: the time
-- is over, or there is such a lock; 1: the gate is open; 2: interrupted.
-- name: SleepAtGate :one
SELECT CAST(IF(EXISTS(
           SELECT l.name FROM dblock_locks l
            WHERE l.session_id = sqlc.arg(session) AND l.handed = 1 AND FIND_IN_SET(l.attempt, sqlc.arg(known)) = 0
       ), 0, COALESCE(GET_LOCK(sqlc.arg(gate), sqlc.arg(seconds)), 2)) AS SIGNED) AS outcome;

-- Rows in use are passed over: nobody's wake-up waits for this, and what is left is said later.
-- name: LockHanded :many
SELECT name, attempt FROM dblock_locks FORCE INDEX (PRIMARY)
 WHERE name IN (sqlc.slice(names)) AND session_id = sqlc.arg(session) AND handed = 1
   FOR UPDATE SKIP LOCKED;

-- After LockHanded.
-- name: AcknowledgeHanded :exec
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET handed = 0 WHERE name IN (sqlc.slice(names));
