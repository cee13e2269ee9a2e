-- The resource is a parameter in hexadecimal digits: see transaction.Hex.

-- Makes the row or locks it, in one statement: a locking read of a row that is not there would lock the gap, which two
-- transactions can do at once, and then neither can insert. It opens no snapshot, so that what the caller reads next is
-- not older than the wait. No affected rows are counted: their number is the client's choice (clientFoundRows).
-- name: See :exec
INSERT INTO dblock_fences (resource, token) VALUES (UNHEX(CONVERT(sqlc.arg(resource) USING latin1)), sqlc.arg(token))
ON DUPLICATE KEY UPDATE token = GREATEST(dblock_fences.token, sqlc.arg(token));

-- After See, which has locked the row: the newest version whatever the isolation level.
-- name: Highest :one
SELECT token FROM dblock_fences WHERE resource = UNHEX(CONVERT(sqlc.arg(resource) USING latin1)) FOR UPDATE;
