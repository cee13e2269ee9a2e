-- TakeLock for units of a name. Here too the lock row alone decides.
-- name: TakeShare :one
WITH timeout AS MATERIALIZED (
    SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true), (SELECT e FROM dblock_epoch(sqlc.arg(name)::text) e) AS epoch
), turn AS MATERIALIZED (
    SELECT CASE WHEN NOT EXISTS (
                     SELECT FROM dblock_locks s
                      WHERE s.name = sqlc.arg(name)::text AND s.epoch >= timeout.epoch
                        AND s.session_id IS NULL AND s.waiters = 0 AND s.rests_until <= dblock_now()
                        AND (s.shared_units = 0 OR (s.capacity = 2147483647) = (sqlc.arg(capacity)::integer = 2147483647)
                             AND s.shared_units::bigint + sqlc.arg(units)::integer <= least(s.capacity, sqlc.arg(capacity)::integer)))
                THEN false
                WHEN EXISTS (SELECT FROM dblock_locks f WHERE f.name = sqlc.arg(name)::text AND f.epoch >= timeout.epoch FOR UPDATE SKIP LOCKED)
                THEN true ELSE dblock_wait(sqlc.arg(name)::text) END AS mine
      FROM timeout
), taken AS (
    UPDATE dblock_locks l SET
           shared_units = l.shared_units + sqlc.arg(units)::integer,
           capacity = CASE WHEN l.shared_units = 0 THEN sqlc.arg(capacity)::integer ELSE least(l.capacity, sqlc.arg(capacity)::integer) END,
           mixed = l.shared_units > 0 AND (l.mixed OR l.capacity <> sqlc.arg(capacity)::integer),
           token = greatest(l.token + 1, dblock_now()), acquired_at = dblock_now(),
           (epoch, grants) = (SELECT l.epoch + (l.grants + 1) / 32, (l.grants + 1) % 32)
      FROM turn
     WHERE turn.mine AND l.name = sqlc.arg(name)::text AND l.epoch >= (SELECT timeout.epoch FROM timeout)
       AND l.session_id IS NULL AND l.waiters = 0 AND l.rests_until <= dblock_now()
       AND (l.shared_units = 0 OR (l.capacity = 2147483647) = (sqlc.arg(capacity)::integer = 2147483647)
            AND l.shared_units::bigint + sqlc.arg(units)::integer <= least(l.capacity, sqlc.arg(capacity)::integer))
    RETURNING l.name, l.token
), share AS (
    INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, capacity, acquired_at, expires_at, metadata)
    SELECT taken.name, taken.token, @session, @host, @thread, @attempt, sqlc.arg(units)::integer, sqlc.arg(capacity)::integer, dblock_now(),
           CASE WHEN sqlc.arg(lease)::bigint > 0 THEN dblock_now() + sqlc.arg(lease)::bigint END, @metadata
      FROM taken
    RETURNING token
), made AS MATERIALIZED (
    SELECT dblock_make(sqlc.arg(name)::text) IS NOT NULL AS done FROM timeout WHERE timeout.epoch IS NULL
)
SELECT coalesce(share.token, 0)::bigint AS token, coalesce(made.done, false)::boolean AS again,
       (turn.mine IS NULL OR NOT coalesce(made.done, true))::boolean AS busy,
       (CASE WHEN share.token IS NULL THEN set_config('synchronous_commit', 'off', true) ELSE dblock_durable()::text END)::text AS commits
  FROM turn LEFT JOIN made ON true LEFT JOIN share ON true;
