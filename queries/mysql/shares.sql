-- After LockRow: a share that a transition has added or changed. Of an existing share, only the end of its lease and
-- the reason in asked can change. The insert id shows that the row is there, even if it did not change.
-- name: PutShare :exec
INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, capacity, acquired_at, expires_at, metadata, asked, unseen)
VALUES (sqlc.arg(name), sqlc.arg(token), sqlc.arg(session), sqlc.arg(host), sqlc.arg(thread), sqlc.arg(attempt), sqlc.arg(units), sqlc.arg(capacity),
       sqlc.arg(acquired_at), sqlc.narg(expires_at), sqlc.arg(metadata), sqlc.narg(asked), sqlc.arg(unseen))
ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at), asked = VALUES(asked), units = LAST_INSERT_ID(dblock_shares.units);

-- After LockRow; without it the share may be gone.
-- name: FindShare :one
SELECT session_id, host, thread, attempt, token, units, capacity, acquired_at, expires_at, metadata, asked
  FROM dblock_shares WHERE name = sqlc.arg(name) AND token = sqlc.arg(token);

-- name: FindShareOfAttempt :one
SELECT session_id, host, thread, attempt, token, units, capacity, acquired_at, expires_at, metadata, asked
  FROM dblock_shares WHERE attempt = sqlc.arg(attempt) AND name = sqlc.arg(name);

-- After LockRow. The last row has no session.
-- name: Shares :many
(SELECT session_id, host, thread, attempt, token, units, capacity, acquired_at, expires_at, metadata, asked
  FROM dblock_shares WHERE name = sqlc.arg(name) ORDER BY token LIMIT 1000000000)
UNION ALL
SELECT _ascii'', '', '', _ascii'', 0, 0, 0, 0, NULL, '', NULL;

-- After LockRow. The last row has no session.
-- name: SharesWith :many
(SELECT session_id, host, thread, attempt, token, units, capacity, acquired_at, expires_at, metadata, asked
  FROM dblock_shares WHERE name = sqlc.arg(name) AND token IN (sqlc.slice(tokens)) ORDER BY token LIMIT 1000000000)
UNION ALL
SELECT _ascii'', '', '', _ascii'', 0, 0, 0, 0, NULL, '', NULL;

-- After LockRow. One row by its whole key.
-- name: DropShare :execrows
DELETE FROM dblock_shares WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1)) AND token = sqlc.arg(token);

-- After LockRow: the smallest and the largest capacity that a holder states; 0 if there is none. At READ COMMITTED it
-- reads the state since the row was locked.
-- name: Stated :one
SELECT CAST(COALESCE(MIN(capacity), 0) AS SIGNED) AS smallest, CAST(COALESCE(MAX(capacity), 0) AS SIGNED) AS largest
  FROM dblock_shares WHERE name = sqlc.arg(name);
