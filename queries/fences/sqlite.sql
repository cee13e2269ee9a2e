-- The whole check, under the one write lock. A transaction with an older snapshot fails (SQLITE_BUSY_SNAPSHOT).
-- name: See :one
INSERT INTO dblock_fences (resource, token) VALUES (sqlc.arg(resource), sqlc.arg(token))
ON CONFLICT (resource) DO UPDATE SET token = max(dblock_fences.token, excluded.token)
RETURNING token;
