-- The resource is a parameter in hexadecimal digits: see transaction.Hex.

-- The whole check. It decides by the locked row alone: at READ COMMITTED that is the newest version; above, an older
-- snapshot fails with 40001. It also writes if the token is known: a lock alone would leave the next holder's older
-- snapshot without an error.
-- name: See :one
INSERT INTO dblock_fences AS f (resource, token) VALUES (convert_from(decode(sqlc.arg(resource)::text, 'hex'), 'UTF8'), sqlc.arg(token)::bigint)
ON CONFLICT (resource) DO UPDATE SET token = greatest(f.token, sqlc.arg(token)::bigint)
RETURNING f.token;
