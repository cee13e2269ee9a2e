-- The name is a parameter in hexadecimal digits: see transaction.Hex.

-- name: Version :one
SELECT coalesce((SELECT v.version FROM dblock_versions v WHERE v.name = convert_from(decode(sqlc.arg(name)::text, 'hex'), 'UTF8')), 0)::bigint AS version;

-- The first bump. Another transaction that is making the row, and has not committed, is waited for.
-- name: Begin :one
WITH bumped AS (
    INSERT INTO dblock_versions (name, version) VALUES (convert_from(decode(sqlc.arg(name)::text, 'hex'), 'UTF8'), 1) ON CONFLICT (name) DO NOTHING RETURNING 1
) SELECT count(*) FROM bumped;

-- Every other. After a wait the condition is looked at again, on the newest version of the row; above READ COMMITTED a
-- snapshot from before that fails with 40001.
-- name: Bump :one
WITH bumped AS (
    UPDATE dblock_versions v SET version = v.version + 1
     WHERE v.name = convert_from(decode(sqlc.arg(name)::text, 'hex'), 'UTF8') AND v.version = sqlc.arg(version)::bigint RETURNING 1
) SELECT count(*) FROM bumped;
