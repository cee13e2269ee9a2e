-- Joins the queue of a name that cannot be had at once, in one statement: it decides by the lock
-- row alone, and the ticket comes from that row, locked. What is free is not queued for, since
-- nobody would hand it on. Its commit need not reach the disk: a place that a crash takes away is
-- put back by its owner. A waiter alone behind an exclusive holder says how many units there are,
-- or that nobody has said.
-- name: JoinQueue :one
WITH timeout AS MATERIALIZED (
    SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true)
), l AS (
    UPDATE dblock_locks q SET waiters = q.waiters + 1, next_ticket = q.next_ticket + 1,
           capacity = CASE WHEN sqlc.arg(units)::integer > 0 THEN sqlc.arg(capacity)::integer
                           WHEN q.shared_units > 0 OR q.waiters > 0 THEN q.capacity ELSE 0 END
      FROM timeout
     WHERE q.name = @name
       AND (q.session_id IS NOT NULL OR q.waiters > 0 OR q.rests_until > dblock_now()
            OR CASE WHEN sqlc.arg(units)::integer = 0 THEN q.shared_units > 0
                    ELSE q.shared_units::bigint + sqlc.arg(units)::integer > sqlc.arg(capacity)::integer END)
       AND (sqlc.arg(units)::integer = 0 OR q.shared_units = 0 AND q.waiters = 0 OR q.capacity IN (0, sqlc.arg(capacity)::integer))
    RETURNING q.name, q.next_ticket - 1 AS ticket
)
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, min_hold)
SELECT l.name, l.ticket, @session, @host, @thread, @attempt, @lease, @metadata, dblock_now(), sqlc.arg(units)::integer, @min_hold FROM l
RETURNING ticket, set_config('synchronous_commit', 'off', true)::text AS commits;

-- After JoinQueue: why it did nothing, if it was not that the name is free.
-- name: OtherCapacity :one
SELECT l.capacity FROM dblock_locks l
 WHERE l.name = @name AND (l.shared_units > 0 OR l.waiters > 0) AND l.capacity NOT IN (0, sqlc.arg(capacity)::integer);

-- After LockRow.
-- name: LeaveQueue :one
WITH gone AS (
    DELETE FROM dblock_waiters w
     WHERE w.name = @name AND w.session_id = sqlc.arg(session)::text
       AND w.attempt = ANY (ARRAY(SELECT jsonb_array_elements_text(sqlc.arg(attempts)::text::jsonb))) RETURNING w.name
), counted AS (
    SELECT gone.name, count(*)::integer AS n FROM gone GROUP BY gone.name
)
UPDATE dblock_locks l SET waiters = l.waiters - counted.n FROM counted WHERE l.name = counted.name
RETURNING l.name;
