-- The resource is a parameter in hexadecimal digits: see transaction.Hex.

-- Makes the row or locks it, in one statement. A locking read of a missing row would lock the gap: two transactions can
-- do that at once, and then neither can insert. It opens no snapshot, so the caller's next read is not older than the
-- wait. Affected rows are not counted: their number depends on the client (clientFoundRows).
-- name: See :exec
/*M! SET STATEMENT innodb_lock_wait_timeout = 50, max_statement_time = 0.5 FOR */ INSERT INTO dblock_fences (resource, token)
VALUES (UNHEX(CONVERT(sqlc.arg(resource) USING latin1)), sqlc.arg(token))
ON DUPLICATE KEY UPDATE token = GREATEST(dblock_fences.token, sqlc.arg(token));

-- After See, which has locked the row: the newest version, whatever the isolation level.
-- name: Highest :one
/*M! SET STATEMENT innodb_lock_wait_timeout = 50, max_statement_time = 0.5 FOR */ SELECT /*+ MAX_EXECUTION_TIME(500) */ token FROM dblock_fences WHERE resource = UNHEX(CONVERT(sqlc.arg(resource) USING latin1)) FOR UPDATE;
