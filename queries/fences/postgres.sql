-- The whole check. It decides by the locked row alone: at READ COMMITTED that is the newest one, above that a snapshot
-- from before it fails with 40001. It writes also where the token is known: a lock alone would leave the next holder's
-- older snapshot without an error.
-- name: See :one
INSERT INTO dblock_fences AS f (resource, token) VALUES (sqlc.arg(resource)::text, sqlc.arg(token)::bigint)
ON CONFLICT (resource) DO UPDATE SET token = greatest(f.token, sqlc.arg(token)::bigint)
RETURNING f.token;
