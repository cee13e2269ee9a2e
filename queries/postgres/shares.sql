-- TakeLock for units of a name. Here too the lock row alone decides, and is made in a first statement: the share is
-- written after it.
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
