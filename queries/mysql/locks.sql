-- The acquire of a free name, in one statement and one commit. It decides by the lock row alone: that row it sees
-- anew after a wait, and nothing else. The token is computed from the row as it is, never from VALUES(), and travels
-- back as the insert id; 0: not taken. SET runs left to right, so session_id, which every condition reads, comes last; that
-- is why it sets no rests_until. asked is null where nobody holds the name.
-- The SELECT's own LAST_INSERT_ID runs first and answers for the insert. No lease: null, and so is the sum.
-- name: TakeLock :execlastid
INSERT INTO dblock_locks (name, session_id, host, thread, holds, attempt, token, acquired_at, expires_at, metadata)
SELECT sqlc.arg(name), sqlc.arg(session), sqlc.arg(host), sqlc.arg(thread), 1, sqlc.arg(attempt), LAST_INSERT_ID(c.now_us), c.now_us,
       c.now_us + CAST(sqlc.narg(lease) AS SIGNED), sqlc.arg(metadata)
  FROM dblock_clock c
ON DUPLICATE KEY UPDATE
       token = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0 AND dblock_locks.shared_units = 0
          AND dblock_locks.rests_until <= c.now_us, LAST_INSERT_ID(GREATEST(dblock_locks.token + 1, c.now_us)), dblock_locks.token + LAST_INSERT_ID(0)),
       host = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0 AND dblock_locks.shared_units = 0
          AND dblock_locks.rests_until <= c.now_us, sqlc.arg(host), dblock_locks.host),
       thread = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0 AND dblock_locks.shared_units = 0
          AND dblock_locks.rests_until <= c.now_us, sqlc.arg(thread), dblock_locks.thread),
       holds = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0 AND dblock_locks.shared_units = 0
          AND dblock_locks.rests_until <= c.now_us, 1, dblock_locks.holds),
       attempt = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0 AND dblock_locks.shared_units = 0
          AND dblock_locks.rests_until <= c.now_us, sqlc.arg(attempt), dblock_locks.attempt),
       acquired_at = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0 AND dblock_locks.shared_units = 0
          AND dblock_locks.rests_until <= c.now_us, c.now_us, dblock_locks.acquired_at),
       expires_at = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0 AND dblock_locks.shared_units = 0
          AND dblock_locks.rests_until <= c.now_us, c.now_us + CAST(sqlc.narg(lease) AS SIGNED), dblock_locks.expires_at),
       metadata = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0 AND dblock_locks.shared_units = 0
          AND dblock_locks.rests_until <= c.now_us, sqlc.arg(metadata), dblock_locks.metadata),
       session_id = IF(dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0 AND dblock_locks.shared_units = 0
          AND dblock_locks.rests_until <= c.now_us, sqlc.arg(session), dblock_locks.session_id);

-- Every change of holder begins with this, and decides in a later statement of the same transaction. A row that another
-- transaction has locked is not returned: it may be the application's, and locked for long, and a wait for a row has no
-- limit that could be set with the statement.
-- name: LockRow :one
SELECT COALESCE(session_id, '') AS session_id, host, thread, attempt, token, expires_at, waiters, shared_units, capacity, rests_until
  FROM dblock_locks WHERE name = sqlc.arg(name) FOR UPDATE SKIP LOCKED;

-- LockRow of many, in the order of their keys.
-- name: LockRows :many
SELECT name, COALESCE(session_id, '') AS session_id, host, thread, attempt, token, expires_at, waiters, shared_units, capacity, rests_until
  FROM dblock_locks FORCE INDEX (PRIMARY) WHERE name IN (sqlc.slice(names)) ORDER BY name FOR UPDATE SKIP LOCKED;

-- After LockRow, which found the name free: the same as TakeLock. The index is forced, here and below, wherever another one
-- could serve: what a statement scans, it locks.
-- name: TakeLocked :execlastid
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET
       token = LAST_INSERT_ID(GREATEST(token + 1, (SELECT c.now_us FROM dblock_clock c))),
       session_id = sqlc.arg(session), host = sqlc.arg(host), thread = sqlc.arg(thread), holds = 1, attempt = sqlc.arg(attempt),
       acquired_at = (SELECT c.now_us FROM dblock_clock c),
       expires_at = (SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.narg(lease) AS SIGNED),
       rests_until = COALESCE((SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.narg(min_hold) AS SIGNED), rests_until),
       metadata = sqlc.arg(metadata)
 WHERE name = sqlc.arg(name) AND session_id IS NULL AND waiters = 0 AND shared_units = 0
   AND rests_until <= (SELECT c.now_us FROM dblock_clock c);

-- After LockRow: gives the lock to somebody, whoever has it.
-- name: GiveLock :execlastid
UPDATE dblock_locks SET
       token = LAST_INSERT_ID(GREATEST(token + 1, (SELECT c.now_us FROM dblock_clock c))),
       session_id = sqlc.arg(session), host = sqlc.arg(host), thread = sqlc.arg(thread), holds = 1, attempt = sqlc.arg(attempt),
       acquired_at = (SELECT c.now_us FROM dblock_clock c),
       expires_at = (SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.narg(lease) AS SIGNED),
       rests_until = COALESCE((SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.narg(min_hold) AS SIGNED), rests_until),
       metadata = sqlc.arg(metadata), asked = NULL, shared_units = 0, waiters = sqlc.arg(waiters), handed = sqlc.arg(handed)
 WHERE name = sqlc.arg(name);

-- After LockRow: nobody has the name as a whole any more, and nobody gets it now.
-- name: FreeLock :exec
UPDATE dblock_locks SET
       acquired_at = IF(CAST(sqlc.arg(used) AS SIGNED) = 0, (SELECT c.now_us FROM dblock_clock c), acquired_at),
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '',
       expires_at = NULL, metadata = '', asked = NULL,
       shared_units = CAST(sqlc.arg(used) AS SIGNED), capacity = sqlc.arg(capacity), waiters = sqlc.arg(waiters), handed = 0
 WHERE name = sqlc.arg(name);

-- The release when nobody waits.
-- name: ReleaseIdle :execrows
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '',
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = NULL, metadata = '', asked = NULL, handed = 0
 WHERE name = sqlc.arg(name) AND session_id = sqlc.arg(session) AND token = sqlc.arg(token) AND waiters = 0;

-- After LockRow. Rows that do not change are not counted: the insert id says that there was one. holds is never 0.
-- name: SetHolds :execlastid
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET holds = LAST_INSERT_ID(CAST(sqlc.arg(holds) AS SIGNED))
 WHERE name = sqlc.arg(name) AND session_id = sqlc.arg(session) AND token = sqlc.arg(token);

-- name: Overdue :many
SELECT name, COALESCE(session_id, '') AS session_id, token FROM dblock_locks
 WHERE expires_at <= (SELECT c.now_us FROM dblock_clock c) AND session_id IS NOT NULL ORDER BY expires_at LIMIT ?;

-- name: OverdueShares :many
SELECT name, session_id, token, units FROM dblock_shares
 WHERE expires_at <= (SELECT c.now_us FROM dblock_clock c) ORDER BY expires_at LIMIT ?;

-- Of which names LockIdle may have something to lock.
-- name: Page :many
SELECT name, CAST(session_id IS NULL AND waiters = 0 AND shared_units = 0
       AND acquired_at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(idle) AS SIGNED) AS SIGNED) AS idle
  FROM dblock_locks WHERE name > sqlc.arg(after) ORDER BY name LIMIT ?;

-- The idle rows among some that nobody is touching. A token ahead of the clock stays, so that the next one is higher.
-- name: LockIdle :many
SELECT name FROM dblock_locks FORCE INDEX (PRIMARY)
 WHERE name IN (sqlc.slice(names))
   AND session_id IS NULL AND waiters = 0 AND shared_units = 0
   AND rests_until < (SELECT c.now_us FROM dblock_clock c)
   AND acquired_at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(idle) AS SIGNED)
   AND token < (SELECT c.now_us FROM dblock_clock c)
   FOR UPDATE SKIP LOCKED;

-- After LockIdle. One row by its key: a DELETE of several reads the whole table, and waits for every row of it, where the
-- optimizer finds that cheaper, and takes no hint.
-- name: DropLock :exec
DELETE FROM dblock_locks WHERE name = sqlc.arg(name);

-- After LockRow: the release of several that nobody waits for and that are the session's.
-- name: FreeLocks :exec
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '',
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = NULL, metadata = '', asked = NULL, handed = 0
 WHERE name IN (sqlc.slice(names));

-- After LockRow: lifts the token of what is held as a whole.
-- name: RaiseToken :execlastid
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET token = LAST_INSERT_ID(GREATEST(token, CAST(sqlc.arg(least) AS SIGNED)))
 WHERE name = sqlc.arg(name) AND session_id = sqlc.arg(session) AND (token = sqlc.arg(token) OR token = sqlc.arg(least));
