-- The acquire of a free name, in one statement and one commit. It decides by the lock row alone:
-- what an upsert waited for it sees anew, but only in that row. Tokens are computed from the row as
-- it is, and under its lock: an insert only makes the row, to be asked for again. Its values are
-- older than the row, by however long the statement stood in between, and meanwhile another row of
-- the name may have come, been granted, and been purged. The lock timeout counts from before the row is
-- met, since what is inserted is read from it.
-- name: TakeLock :one
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true))
INSERT INTO dblock_locks AS l (name, token, acquired_at)
SELECT sqlc.arg(name)::text, dblock_now(), dblock_now() FROM timeout
ON CONFLICT (name) DO UPDATE SET
       session_id = sqlc.arg(session)::text, host = sqlc.arg(host)::text, thread = sqlc.arg(thread)::text, holds = 1,
       attempt = sqlc.arg(attempt)::text, acquired_at = dblock_now(), metadata = sqlc.arg(metadata)::text,
       (token, first_token, last_token) = (SELECT t.token, t.token, t.token FROM (SELECT greatest(l.token + 1, dblock_now()) AS token) t),
       expires_at = CASE WHEN sqlc.arg(lease)::bigint > 0 THEN dblock_now() + sqlc.arg(lease)::bigint END,
       rests_until = CASE WHEN sqlc.arg(min_hold)::bigint > 0 THEN dblock_now() + sqlc.arg(min_hold)::bigint ELSE 0 END, asked = ''
 WHERE l.session_id IS NULL AND l.waiters = 0 AND l.shared_units = 0 AND l.rests_until <= dblock_now()
RETURNING l.token, (l.session_id IS NULL)::boolean AS made,
       (CASE WHEN l.session_id IS NULL THEN set_config('synchronous_commit', 'off', true) = 'off' ELSE dblock_durable() END)::boolean AS durable;

-- Every other change of holder begins with this, and decides in a later statement of the same
-- transaction.
-- name: LockRow :one
SELECT name FROM dblock_locks WHERE name = @name FOR UPDATE;

-- The same, with a lock timeout: evaluated before the row is locked, since it is
-- read to find it.
-- name: LockRowWithin :one
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true) AS set)
SELECT l.name FROM dblock_locks l, timeout WHERE l.name = @name FOR UPDATE OF l;

-- The release when nobody waits. Its commit need not reach the disk: a release that a crash takes
-- back is a lock that no handle claims, and its client gives it back again.
-- name: ReleaseIdle :one
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true))
UPDATE dblock_locks l SET
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '', acquired_at = dblock_now(),
       expires_at = NULL, metadata = ''
  FROM timeout
 WHERE l.name = @name AND l.session_id = sqlc.arg(session)::text AND l.last_token = @token AND l.waiters = 0
RETURNING l.name, set_config('synchronous_commit', 'off', true)::text AS commits;

-- After LockGuard: the same owner comes back in another session. The old one is told, and fenced.
-- name: Reenter :one
UPDATE dblock_locks l SET
       session_id = sqlc.arg(session)::text, holds = 1, attempt = @attempt, token = old.next, first_token = old.next, last_token = old.next,
       acquired_at = dblock_now(), metadata = @metadata,
       expires_at = CASE WHEN sqlc.arg(lease)::bigint > 0 THEN dblock_now() + sqlc.arg(lease)::bigint END, asked = '',
       rests_until = CASE WHEN sqlc.arg(min_hold)::bigint > 0 THEN dblock_now() + sqlc.arg(min_hold)::bigint ELSE l.rests_until END
  FROM (SELECT o.name, o.session_id, o.attempt, greatest(o.token + 1, dblock_now()) AS next FROM dblock_locks o WHERE o.name = @name) old
 WHERE l.name = old.name
   AND l.session_id IS NOT NULL AND l.host = @host AND l.thread = @thread
RETURNING l.token, l.waiters, dblock_durable() AS durable, pg_notify('dblock_' || old.session_id, old.attempt)::text AS notified;

-- name: SetHolds :one
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true))
UPDATE dblock_locks l SET holds = @holds FROM timeout
 WHERE l.name = @name AND l.session_id = sqlc.arg(session)::text AND l.last_token = @token
RETURNING l.name;

-- By the lock row alone: a takeover decides under its lock whether the lease is over. Never earlier
-- than it was. Durable like a grant: the holder relies on the end that it was told.
-- name: ExtendLock :one
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true))
UPDATE dblock_locks l SET expires_at = greatest(l.expires_at, dblock_now() + sqlc.arg(lease)::bigint) FROM timeout
 WHERE l.name = @name AND l.session_id = sqlc.arg(session)::text AND l.last_token = @token AND l.expires_at > dblock_now()
RETURNING (l.expires_at - dblock_now())::bigint AS remaining, dblock_durable() AS durable;

-- name: Overdue :many
SELECT h.name, h.session_id::text AS session, h.token, h.units FROM dblock_holders h
 WHERE h.expires_at <= dblock_now() ORDER BY h.expires_at LIMIT @most;

-- A page of names, upwards from after; of these, the idle rows that nobody is touching go. A token
-- ahead of the clock stays, so that the next one is higher still.
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
