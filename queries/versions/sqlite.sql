-- name: Version :one
SELECT CAST(coalesce((SELECT v.version FROM dblock_versions v WHERE v.name = sqlc.arg(name)), 0) AS INTEGER) AS version;

-- The first bump.
-- name: Begin :one
INSERT INTO dblock_versions (name, version) VALUES (sqlc.arg(name), 1) ON CONFLICT (name) DO NOTHING RETURNING version;

-- Every other bump.
-- name: Bump :one
UPDATE dblock_versions SET version = version + 1 WHERE name = sqlc.arg(name) AND version = sqlc.arg(version) RETURNING version;
