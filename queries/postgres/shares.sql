-- TakeLock for so many units of a name. Here too the lock row alone decides, and is made before it
-- is taken: the share is written after it.
-- name: TakeShare :one
WITH timeout AS MATERIALIZED (
    SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true)
), l AS (
    INSERT INTO dblock_locks AS l (name, token, acquired_at)
    SELECT sqlc.arg(name)::text, dblock_now(), dblock_now() FROM timeout
    ON CONFLICT (name) DO UPDATE SET
           shared_units = l.shared_units + sqlc.arg(units)::integer,
           capacity = CASE WHEN l.shared_units = 0 THEN sqlc.arg(capacity)::integer ELSE least(l.capacity, sqlc.arg(capacity)::integer) END,
           mixed = l.shared_units > 0 AND (l.mixed OR l.capacity <> sqlc.arg(capacity)::integer),
           token = greatest(l.token + 1, dblock_now()), acquired_at = dblock_now()
     WHERE l.session_id IS NULL AND l.waiters = 0 AND l.rests_until <= dblock_now()
       AND (l.shared_units = 0 OR (l.capacity = 2147483647) = (sqlc.arg(capacity)::integer = 2147483647)
            AND l.shared_units::bigint + sqlc.arg(units)::integer <= least(l.capacity, sqlc.arg(capacity)::integer))
    RETURNING l.name, l.token, l.shared_units = 0 AS made
), share AS (
    INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, capacity, acquired_at, expires_at, metadata)
    SELECT l.name, l.token, @session, @host, @thread, @attempt, sqlc.arg(units)::integer, sqlc.arg(capacity)::integer, dblock_now(),
           CASE WHEN sqlc.arg(lease)::bigint > 0 THEN dblock_now() + sqlc.arg(lease)::bigint END, @metadata
      FROM l WHERE NOT l.made
    RETURNING token
)
SELECT l.token, l.made::boolean AS made, dblock_durable() AS durable FROM l;

-- name: SetShareHolds :one
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true))
UPDATE dblock_shares s SET holds = @holds FROM timeout
 WHERE s.name = @name AND s.session_id = sqlc.arg(session)::text AND s.token = @token
RETURNING s.name;

-- ExtendLock for a share. What takes shares away deletes their rows.
-- name: ExtendShare :one
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true))
UPDATE dblock_shares s SET expires_at = greatest(s.expires_at, dblock_now() + sqlc.arg(lease)::bigint) FROM timeout
 WHERE s.name = @name AND s.session_id = sqlc.arg(session)::text AND s.token = @token AND s.expires_at > dblock_now()
RETURNING (s.expires_at - dblock_now())::bigint AS remaining, dblock_durable() AS durable;

-- After LockRow: the exclusive holder becomes a reader, unless waiters want permits.
-- name: Downgrade :exec
WITH share AS (
    INSERT INTO dblock_shares (name, token, session_id, host, thread, holds, attempt, units, capacity, acquired_at, expires_at, metadata, asked)
    SELECT l.name, l.last_token, l.session_id, l.host, l.thread, l.holds, l.attempt, 1, sqlc.arg(readers)::integer, l.acquired_at, l.expires_at, l.metadata, l.asked
      FROM dblock_locks l
     WHERE l.name = @name AND l.session_id = sqlc.arg(session)::text AND l.last_token = @token AND l.first_token = l.last_token
       AND (l.waiters = 0 OR l.capacity IN (0, sqlc.arg(readers)::integer))
    RETURNING name
)
UPDATE dblock_locks l SET
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '', expires_at = NULL, metadata = '', asked = '',
       shared_units = 1, capacity = sqlc.arg(readers)::integer
  FROM share WHERE l.name = share.name;

-- After LockRow: the only share of a name becomes the whole of it, before all waiters.
-- name: Upgrade :one
WITH share AS (
    DELETE FROM dblock_shares s USING dblock_locks l
     WHERE s.name = @name AND s.session_id = sqlc.arg(session)::text AND s.attempt = @attempt
       AND l.name = s.name AND l.session_id IS NULL AND l.shared_units = s.units
    RETURNING s.name, s.session_id, s.host, s.thread, s.holds, s.attempt, s.expires_at, s.metadata, greatest(l.token + 1, dblock_now()) AS token
)
UPDATE dblock_locks l SET
       session_id = share.session_id, host = share.host, thread = share.thread, holds = share.holds, attempt = share.attempt,
       expires_at = share.expires_at, metadata = share.metadata, asked = '',
       token = share.token, first_token = share.token, last_token = share.token, acquired_at = dblock_now(), shared_units = 0
  FROM share WHERE l.name = share.name
RETURNING l.token, dblock_durable() AS durable;

-- After Downgrade and Upgrade: what became of it.
-- name: Standing :one
SELECT h.token, h.units, l.waiters, l.capacity, coalesce(h.expires_at, 0)::bigint AS expires_at, dblock_now() AS now
  FROM dblock_holders h JOIN dblock_locks l ON l.name = h.name
 WHERE h.name = @name AND h.session_id = sqlc.arg(session)::text AND (h.token = @token OR h.attempt = @attempt);

-- Durable like a grant: a token that was shown must not be granted again. Also with the token to
-- which it was raised before, by a call whose answer was lost.
-- name: RaiseToken :one
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true))
UPDATE dblock_locks l SET token = greatest(l.token, sqlc.arg(least_token)::bigint),
       first_token = greatest(l.last_token, sqlc.arg(least_token)::bigint), last_token = greatest(l.last_token, sqlc.arg(least_token)::bigint)
  FROM timeout
 WHERE l.name = @name AND l.session_id = sqlc.arg(session)::text AND l.last_token IN (sqlc.arg(token)::bigint, sqlc.arg(least_token)::bigint)
RETURNING l.last_token AS token, dblock_durable() AS durable;
