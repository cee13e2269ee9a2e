-- The name is a parameter in hexadecimal digits: see transaction.Hex.

-- name: Version :one
SELECT CAST(COALESCE((SELECT v.version FROM dblock_versions v WHERE v.name = UNHEX(CONVERT(sqlc.arg(name) USING latin1))), 0) AS SIGNED) AS version;

-- Before the first bump: makes the row or locks it. See queries/fences/mysql.sql.
-- name: Begin :exec
/*M! SET STATEMENT innodb_lock_wait_timeout = 50, max_statement_time = 0.5 FOR */ INSERT INTO dblock_versions (name, version)
VALUES (UNHEX(CONVERT(sqlc.arg(name) USING latin1)), 0)
ON DUPLICATE KEY UPDATE version = dblock_versions.version;

-- The newest version, whatever the isolation level.
-- name: LockVersion :one
/*M! SET STATEMENT innodb_lock_wait_timeout = 50, max_statement_time = 0.5 FOR */ SELECT /*+ MAX_EXECUTION_TIME(500) */ version
  FROM dblock_versions WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1)) FOR UPDATE;

-- After LockVersion.
-- name: Bump :exec
UPDATE dblock_versions SET version = version + 1 WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1));

-- After Bump, as LockVersion: the row is locked already, so the statement waits for nobody.
-- name: Bumped :one
SELECT version FROM dblock_versions WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1)) FOR UPDATE;
