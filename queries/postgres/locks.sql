-- Takes a free name, in one statement and one commit. It decides by the lock row alone: an update sees the newest version of
-- the row that it waited for, but of no other row. The lock timeout applies before the row is locked, since the row is found by
-- it. more: the members of a cohort behind the first. again: the name had no row, or another transaction has purged it meanwhile.
-- It has one now, and the request is repeated.
-- name: TakeLock :one
WITH timeout AS MATERIALIZED (
    SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true), sqlc.arg(more)::bigint AS more,
           (SELECT e FROM dblock_epoch(sqlc.arg(name)::text) e) AS epoch
), taken AS (
    UPDATE dblock_locks l SET
           session_id = sqlc.arg(session)::text, host = sqlc.arg(host)::text, thread = sqlc.arg(thread)::text,
           attempt = sqlc.arg(attempt)::text, acquired_at = dblock_now(), metadata = sqlc.arg(metadata)::text,
           (first_token, last_token, token) = (SELECT t.first, t.first + timeout.more, t.first + timeout.more
                                                 FROM (SELECT greatest(l.token + 1, dblock_now()) AS first) t),
           (epoch, grants) = (SELECT l.epoch + (l.grants + 1) / 32, (l.grants + 1) % 32),
           expires_at = CASE WHEN sqlc.arg(lease)::bigint > 0 THEN dblock_now() + sqlc.arg(lease)::bigint END,
           rests_until = CASE WHEN sqlc.arg(min_hold)::bigint > 0 THEN dblock_now() + sqlc.arg(min_hold)::bigint ELSE 0 END, asked = ''
      FROM timeout
     WHERE l.name = sqlc.arg(name)::text AND l.epoch >= (SELECT timeout.epoch FROM timeout)
       AND l.session_id IS NULL AND l.waiters = 0 AND l.shared_units = 0 AND l.rests_until <= dblock_now()
    RETURNING l.token
)
SELECT coalesce(taken.token, 0)::bigint AS token,
       (CASE WHEN taken.token IS NULL THEN dblock_make(sqlc.arg(name)::text) OR timeout.epoch IS NULL ELSE false END)::boolean AS again,
       (CASE WHEN taken.token IS NULL THEN set_config('synchronous_commit', 'off', true) ELSE dblock_durable()::text END)::text AS commits
  FROM timeout LEFT JOIN taken ON true;

-- name: LockRow :one
SELECT l.name FROM dblock_locks l
 WHERE l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e) FOR UPDATE;

-- Locks the row of a name for later statements of the same transaction. The lock timeout is evaluated before the row is
-- locked, since the row is found by it.
-- name: LockRowWithin :one
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true) AS set)
SELECT l.name FROM dblock_locks l, timeout
 WHERE l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e) FOR UPDATE OF l;

-- Releases a name without waiters. The commit need not reach the disk: if a crash undoes the release, no handle claims
-- the lock, and its client releases it again.
-- name: ReleaseIdle :one
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true))
UPDATE dblock_locks l SET
       session_id = NULL, host = '', thread = '', attempt = '', acquired_at = dblock_now(), expires_at = NULL, metadata = '', asked = ''
  FROM timeout
 WHERE l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e)
   AND l.session_id = sqlc.arg(session)::text AND l.last_token = @token AND l.waiters = 0
RETURNING l.name, set_config('synchronous_commit', 'off', true)::text AS commits;

-- name: Overdue :many
SELECT h.name, h.session_id::text AS session, h.token, h.units FROM dblock_holders h
 WHERE h.expires_at <= dblock_now() ORDER BY h.expires_at LIMIT @most;

-- A page of names, ascending from after. Deletes those whose idle rows no transaction has locked. Who makes the rows of a name
-- locks its row in dblock_names first, and so does this. A row with a token ahead of the clock stays, so that the next token is
-- higher.
-- name: Purge :one
WITH page AS (
    SELECT p.name FROM dblock_names p WHERE p.name > @after ORDER BY p.name LIMIT @most
), named AS MATERIALIZED (
    SELECT n.name FROM dblock_names n WHERE n.name IN (
        SELECT i.name FROM dblock_locks i
         WHERE i.name IN (SELECT page.name FROM page)
           AND i.session_id IS NULL AND i.waiters = 0 AND i.shared_units = 0 AND i.acquired_at < dblock_now() - sqlc.arg(idle)::bigint
           AND i.rests_until < dblock_now() AND i.token < dblock_now())
       FOR UPDATE SKIP LOCKED
), idle AS MATERIALIZED (
    SELECT l.name FROM dblock_locks l
     WHERE l.name IN (SELECT named.name FROM named)
       AND l.session_id IS NULL AND l.waiters = 0 AND l.shared_units = 0 AND l.acquired_at < dblock_now() - sqlc.arg(idle)::bigint
       AND l.rests_until < dblock_now() AND l.token < dblock_now()
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM dblock_locks l USING idle
     WHERE l.name = idle.name AND l.session_id IS NULL AND l.waiters = 0 AND l.shared_units = 0
    RETURNING l.name
), unnamed AS (
    DELETE FROM dblock_names n USING gone WHERE n.name = gone.name
)
SELECT (SELECT count(*) FROM gone)::integer AS deleted, coalesce(max(page.name), '')::text AS last,
       count(page.name)::integer AS walked
  FROM page;
