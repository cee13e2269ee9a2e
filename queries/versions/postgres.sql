-- The name is a parameter in hexadecimal digits: see transaction.Hex.

-- name: Version :one
SELECT coalesce((SELECT v.version FROM dblock_versions v WHERE v.name = convert_from(decode(sqlc.arg(name)::text, 'hex'), 'UTF8')), 0)::bigint AS version;

-- The first bump. It waits for another transaction that is making the row.
-- name: Begin :one
WITH bumped AS (
    INSERT INTO dblock_versions (name, version) VALUES (convert_from(decode(sqlc.arg(name)::text, 'hex'), 'UTF8'), 1) ON CONFLICT (name) DO NOTHING RETURNING 1
) SELECT count(*) FROM bumped;

-- Every other bump. After a wait the condition is evaluated again, on the newest version of the row; above READ
-- COMMITTED an older snapshot fails with 40001.
-- name: Bump :one
WITH bumped AS (
    UPDATE dblock_versions v SET version = v.version + 1
     WHERE v.name = convert_from(decode(sqlc.arg(name)::text, 'hex'), 'UTF8') AND v.version = sqlc.arg(version)::bigint RETURNING 1
) SELECT count(*) FROM bumped;
