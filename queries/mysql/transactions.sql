-- Inside the caller's transactions, and outside of them. The settings of the caller's connection are unknown, so a name
-- is a parameter in hexadecimal digits there: see transaction.Hex.

-- The release inside a transaction: the queue is unchanged, and the first client that notices the commit hands the name
-- on. A cohort is detached before.
-- name: ReleaseTx :execrows
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET
       session_id = NULL, host = '', thread = '', attempt = '',
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = NULL, metadata = '', asked = NULL, unseen = 0
 WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1)) AND session_id = sqlc.arg(session) AND last_token = sqlc.arg(token)
   AND first_token = last_token;

-- The same for a share, after DropShare. If the holders state different capacities, the next client that decides about
-- the name finds the smallest remaining one: here that would lock their rows.
-- name: ReturnUnits :exec
UPDATE dblock_locks SET
       acquired_at = IF(shared_units <= CAST(sqlc.arg(units) AS SIGNED), (SELECT c.now_us FROM dblock_clock c), acquired_at),
       shared_units = GREATEST(shared_units - CAST(sqlc.arg(units) AS SIGNED), 0)
 WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1));

-- Tells whether LockTx can lock a name's row: its holder, and whether a purge spares the row for as long as LockTx
-- needs.
-- name: FindRow :one
SELECT COALESCE(l.session_id, '') AS session_id, l.attempt, l.waiters, l.shared_units,
       CAST(l.rests_until > c.now_us AS SIGNED) AS rests, CAST(l.acquired_at > c.now_us + CAST(sqlc.arg(enough) AS SIGNED) AS SIGNED) AS kept
  FROM dblock_locks l JOIN dblock_clock c
 WHERE l.name = sqlc.arg(name);

-- Makes the row of a name that has none, and protects it from a purge for so long. The condition repeats the check in
-- the same statement, since the insert would wait for another client that has made the row and locked it. 0: there is a
-- row.
-- name: EnsureRow :execrows
INSERT INTO dblock_locks (name, host, thread, token, acquired_at, metadata)
SELECT IF(@@character_set_client IN (@@character_set_connection, 'binary'), sqlc.arg(name), NULL), '', '', c.now_us, c.now_us + CAST(sqlc.arg(keep) AS SIGNED), ''
  FROM dblock_clock c
 WHERE NOT EXISTS (SELECT l.name FROM dblock_locks l WHERE l.name = sqlc.arg(name))
ON DUPLICATE KEY UPDATE name = dblock_locks.name;

-- Protects the row of a free name from a purge. If the row is locked, it does nothing. LIMIT keeps MySQL from merging
-- the derived table, and waiting.
-- name: KeepRow :execrows
UPDATE (SELECT r.name FROM dblock_locks r FORCE INDEX (PRIMARY)
         WHERE r.name = sqlc.arg(name) AND r.session_id IS NULL AND r.waiters = 0 AND r.shared_units = 0
         LIMIT 1 FOR UPDATE SKIP LOCKED) s
  STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = s.name
   SET l.acquired_at = (SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.arg(keep) AS SIGNED);

-- LockRow in a caller's transaction, of an existing row: at REPEATABLE READ, SKIP LOCKED would lock the gap after the
-- row, and a read of a missing row would lock the gap in its place.
-- name: LockRowNow :one
SELECT COALESCE(session_id, '') AS session_id, host, thread, attempt, token, first_token, last_token, expires_at, waiters, shared_units, capacity, mixed, rests_until, database_id
  FROM dblock_locks WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1)) FOR UPDATE NOWAIT;

-- LockRowNow, waiting for transaction.Turn while the row is locked.
-- name: AwaitRow :one
/*M! SET STATEMENT innodb_lock_wait_timeout = 50, max_statement_time = 0.5 FOR */ SELECT /*+ MAX_EXECUTION_TIME(500) */ COALESCE(session_id, '') AS session_id, host, thread,
       attempt, token, first_token, last_token, expires_at, waiters, shared_units, capacity, mixed, rests_until, database_id
  FROM dblock_locks WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1)) FOR UPDATE;

-- After LockRowNow or AwaitRow, and before LeaveTrace: the row in the transaction's snapshot.
-- name: SnapshotRow :one
SELECT COALESCE(session_id, '') AS session_id, token, shared_units, next_ticket FROM dblock_locks
 WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1));

-- After LockRowNow or AwaitRow, where a lock alone leaves no trace: LockTx uses up a ticket, which is the insert id.
-- name: LeaveTrace :execlastid
UPDATE dblock_locks SET next_ticket = LAST_INSERT_ID(next_ticket) + 1 WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1));

-- Tells whether a row that LockRow did not return exists, locked by another transaction.
-- name: RowExists :one
SELECT EXISTS(SELECT l.name FROM dblock_locks l WHERE l.name = sqlc.arg(name)) AS there;

-- The same for rows that LockRows did not return.
-- name: RowsExist :many
SELECT name FROM dblock_locks FORCE INDEX (PRIMARY) WHERE name IN (sqlc.slice(names));

-- The id of this database, in tables of this build's version, or in a transaction of the caller.
-- name: Database :one
SELECT database_id FROM dblock_schema;
