-- Inside transactions of the caller's, and beside them. On the caller's connection, of which
-- nothing is known, a name is a parameter in hexadecimal digits: see transaction.Hex.

-- The release inside a transaction: the queue stays as it is, and the first client that notices the
-- commit hands the name on. A cohort is detached before.
-- name: ReleaseTx :execrows
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET
       session_id = NULL, host = '', thread = '', attempt = '',
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = NULL, metadata = '', asked = NULL, unseen = 0
 WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1)) AND session_id = sqlc.arg(session) AND last_token = sqlc.arg(token)
   AND first_token = last_token;

-- The same of a share, after DropShare. Where the holders state several numbers of units, the smallest of those that are left
-- is looked up by whoever next decides about the name: here that would lock their rows.
-- name: ReturnUnits :exec
UPDATE dblock_locks SET
       acquired_at = IF(shared_units <= CAST(sqlc.arg(units) AS SIGNED), (SELECT c.now_us FROM dblock_clock c), acquired_at),
       shared_units = GREATEST(shared_units - CAST(sqlc.arg(units) AS SIGNED), 0)
 WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1));

-- Whether LockTx can lock a name's row: its holder, and whether a purge leaves the row alone for as
-- long as LockTx needs.
-- name: FindRow :one
SELECT COALESCE(l.session_id, '') AS session_id, l.attempt, l.waiters, l.shared_units,
       CAST(l.rests_until > c.now_us AS SIGNED) AS rests, CAST(l.acquired_at > c.now_us + CAST(sqlc.arg(enough) AS SIGNED) AS SIGNED) AS kept
  FROM dblock_locks l JOIN dblock_clock c
 WHERE l.name = sqlc.arg(name);

-- Makes the row of a name that has none, and keeps it from a purge for so long. It looks once more,
-- in the same statement, since it waits where somebody has made the row and locked it. 0: there is a row.
-- name: EnsureRow :execrows
INSERT INTO dblock_locks (name, host, thread, token, acquired_at, metadata)
SELECT IF(@@character_set_client IN (@@character_set_connection, 'binary'), sqlc.arg(name), NULL), '', '', c.now_us, c.now_us + CAST(sqlc.arg(keep) AS SIGNED), ''
  FROM dblock_clock c
 WHERE NOT EXISTS (SELECT l.name FROM dblock_locks l WHERE l.name = sqlc.arg(name))
ON DUPLICATE KEY UPDATE name = dblock_locks.name;

-- Keeps the row of a name that nobody has from a purge, unless it is locked: then nothing is done.
-- LIMIT keeps MySQL from merging the derived table, and waiting.
-- name: KeepRow :execrows
UPDATE (SELECT r.name FROM dblock_locks r FORCE INDEX (PRIMARY)
         WHERE r.name = sqlc.arg(name) AND r.session_id IS NULL AND r.waiters = 0 AND r.shared_units = 0
         LIMIT 1 FOR UPDATE SKIP LOCKED) s
  STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = s.name
   SET l.acquired_at = (SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.arg(keep) AS SIGNED);

-- LockRow in a caller's transaction, of a row that is there: at REPEATABLE READ, SKIP LOCKED would
-- keep the gap after the row, and a row that is missing leaves the gap where it was.
-- name: LockRowNow :one
SELECT COALESCE(session_id, '') AS session_id, host, thread, attempt, token, first_token, last_token, expires_at, waiters, shared_units, capacity, mixed, rests_until, database_id
  FROM dblock_locks WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1)) FOR UPDATE NOWAIT;

-- LockRowNow, waiting for as long as the row is locked.
-- name: AwaitRow :one
SELECT COALESCE(session_id, '') AS session_id, host, thread, attempt, token, first_token, last_token, expires_at, waiters, shared_units, capacity, mixed, rests_until, database_id
  FROM dblock_locks WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1)) FOR UPDATE;

-- Whether a row that LockRow did not return is there, and locked by somebody else.
-- name: RowExists :one
SELECT EXISTS(SELECT l.name FROM dblock_locks l WHERE l.name = sqlc.arg(name)) AS there;

-- The same of rows that LockRows did not return.
-- name: RowsExist :many
SELECT name FROM dblock_locks FORCE INDEX (PRIMARY) WHERE name IN (sqlc.slice(names));

-- Which database this is: in tables of this build's version, or in a transaction of the caller's.
-- name: Database :one
SELECT database_id FROM dblock_schema;
