-- Takes a free name, in one statement and one commit. It decides by the lock row alone: an upsert sees the newest
-- version of the row that it waited for, but of no other row. Tokens are computed from the existing row, under its
-- lock. An insert only makes the row, and the request is repeated: the inserted values are older than the row by the
-- time that the statement took, and meanwhile another row of the name may have been made, granted, and purged. The lock
-- timeout applies before the row is locked, since the inserted row is read from it. more: the members of a cohort
-- behind the first.
-- name: TakeLock :one
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true), sqlc.arg(more)::bigint AS more)
INSERT INTO dblock_locks AS l (name, token, acquired_at)
SELECT sqlc.arg(name)::text, dblock_now(), dblock_now() FROM timeout
ON CONFLICT (name) DO UPDATE SET
       session_id = sqlc.arg(session)::text, host = sqlc.arg(host)::text, thread = sqlc.arg(thread)::text,
       attempt = sqlc.arg(attempt)::text, acquired_at = dblock_now(), metadata = sqlc.arg(metadata)::text,
       (first_token, last_token, token) = (SELECT t.first, t.first + timeout.more, t.first + timeout.more
                                             FROM timeout CROSS JOIN (SELECT greatest(l.token + 1, dblock_now()) AS first) t),
       expires_at = CASE WHEN sqlc.arg(lease)::bigint > 0 THEN dblock_now() + sqlc.arg(lease)::bigint END,
       rests_until = CASE WHEN sqlc.arg(min_hold)::bigint > 0 THEN dblock_now() + sqlc.arg(min_hold)::bigint ELSE 0 END, asked = ''
 WHERE l.session_id IS NULL AND l.waiters = 0 AND l.shared_units = 0 AND l.rests_until <= dblock_now()
RETURNING l.token, (l.session_id IS NULL)::boolean AS made,
       (CASE WHEN l.session_id IS NULL THEN set_config('synchronous_commit', 'off', true) = 'off' ELSE dblock_durable() END)::boolean AS durable;

-- name: LockRow :one
SELECT name FROM dblock_locks WHERE name = @name FOR UPDATE;

-- Locks the row of a name for later statements of the same transaction. The lock timeout is evaluated before the row is
-- locked, since the row is found by it.
-- name: LockRowWithin :one
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true) AS set)
SELECT l.name FROM dblock_locks l, timeout WHERE l.name = @name FOR UPDATE OF l;

-- Releases a name without waiters. The commit need not reach the disk: if a crash undoes the release, no handle claims
-- the lock, and its client releases it again.
-- name: ReleaseIdle :one
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true))
UPDATE dblock_locks l SET
       session_id = NULL, host = '', thread = '', attempt = '', acquired_at = dblock_now(), expires_at = NULL, metadata = '', asked = ''
  FROM timeout
 WHERE l.name = @name AND l.session_id = sqlc.arg(session)::text AND l.last_token = @token AND l.waiters = 0
RETURNING l.name, set_config('synchronous_commit', 'off', true)::text AS commits;

-- name: Overdue :many
SELECT h.name, h.session_id::text AS session, h.token, h.units FROM dblock_holders h
 WHERE h.expires_at <= dblock_now() ORDER BY h.expires_at LIMIT @most;

-- A page of names, ascending from after. Deletes its idle rows that no transaction has locked. A row with a token ahead
-- of the clock stays, so that the next token is higher.
-- name: Purge :one
WITH page AS (
    SELECT p.name FROM dblock_locks p WHERE p.name > @after ORDER BY p.name LIMIT @most
), idle AS (
    SELECT l.name FROM dblock_locks l
     WHERE l.name IN (SELECT page.name FROM page)
       AND l.session_id IS NULL AND l.waiters = 0 AND l.shared_units = 0 AND l.acquired_at < dblock_now() - sqlc.arg(idle)::bigint
       AND l.rests_until < dblock_now() AND l.token < dblock_now()
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM dblock_locks l USING idle
     WHERE l.name = idle.name AND l.session_id IS NULL AND l.waiters = 0 AND l.shared_units = 0
    RETURNING l.name
)
SELECT (SELECT count(*) FROM gone)::integer AS deleted, coalesce(max(page.name), '')::text AS last,
       count(page.name)::integer AS walked
  FROM page;
