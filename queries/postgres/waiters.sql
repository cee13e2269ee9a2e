-- Joins the queue of a name that is not available, in one statement. It decides by the lock row alone, and takes the
-- ticket from that row, locked. A free name gets no queue, since no release would hand it on. The commit need not reach
-- the disk: a place that a crash removes is queued again by its owner, and so are the members that it lacks afterwards.
-- If the name has no shares, the first waiter for units states the capacity of the queue. If the place that the request
-- extends is the last, it grows: its row may have changed since the snapshot, and is looked at again once it is locked.
-- name: JoinQueue :one
WITH timeout AS MATERIALIZED (
    SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true), (SELECT e FROM dblock_epoch(@name) e) AS epoch
), turn AS MATERIALIZED (
    SELECT CASE WHEN NOT EXISTS (
                     SELECT FROM dblock_locks s
                      WHERE s.name = @name AND s.epoch >= timeout.epoch
                        AND (s.session_id IS NOT NULL OR s.waiters > 0 OR s.shared_units > 0 OR s.rests_until > dblock_now()))
                THEN false
                WHEN EXISTS (SELECT FROM dblock_locks f WHERE f.name = @name AND f.epoch >= timeout.epoch FOR UPDATE SKIP LOCKED)
                THEN true ELSE dblock_wait(@name) END AS mine
      FROM timeout
), queue AS MATERIALIZED (
    SELECT c.next_ticket - 1 AS last FROM turn, dblock_locks c
     WHERE turn.mine AND sqlc.arg(extends)::text <> '' AND c.name = @name AND c.epoch >= (SELECT timeout.epoch FROM timeout)
       AND c.waiters > 0
       FOR UPDATE OF c
), grown AS (
    UPDATE dblock_waiters w SET members = w.members + sqlc.arg(members)::integer
     WHERE w.name = @name AND w.ticket = (SELECT queue.last FROM queue) AND w.session_id = @session AND w.attempt = sqlc.arg(extends)::text
       AND w.members + sqlc.arg(members)::integer <= sqlc.arg(most)::integer
    RETURNING w.members - sqlc.arg(members)::integer AS ahead
), l AS (
    UPDATE dblock_locks q SET waiters = q.waiters + sqlc.arg(members)::integer,
           next_ticket = q.next_ticket + CASE WHEN EXISTS (SELECT FROM grown) THEN 0 ELSE 1 END,
           capacity = CASE WHEN (q.shared_units > 0 OR q.waiters > 0) AND q.capacity > 0 THEN q.capacity ELSE sqlc.arg(capacity)::integer END
      FROM turn
     WHERE turn.mine AND q.name = @name AND q.epoch >= (SELECT timeout.epoch FROM timeout)
       AND (q.session_id IS NOT NULL OR q.waiters > 0 OR q.rests_until > dblock_now()
            OR CASE WHEN sqlc.arg(units)::integer = 0 THEN q.shared_units > 0
                    ELSE q.shared_units > 0 AND q.shared_units::bigint + sqlc.arg(units)::integer > least(q.capacity, sqlc.arg(capacity)::integer) END)
       AND (sqlc.arg(units)::integer = 0 OR q.shared_units = 0 AND q.waiters = 0 OR q.capacity = 0
            OR (q.capacity = 2147483647) = (sqlc.arg(capacity)::integer = 2147483647))
    RETURNING q.name, q.next_ticket - 1 AS ticket
), placed AS (
    INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, capacity, min_hold, members)
    SELECT l.name, l.ticket, @session, @host, @thread, @attempt, @lease, @metadata, dblock_now(), sqlc.arg(units)::integer, sqlc.arg(capacity)::integer,
           @min_hold, sqlc.arg(members)::integer FROM l
     WHERE NOT EXISTS (SELECT FROM grown)
    RETURNING ticket
)
SELECT EXISTS (SELECT FROM l) AS queued, coalesce((SELECT grown.ahead FROM grown), 0)::integer AS ahead, (turn.mine IS NULL)::boolean AS busy, set_config('synchronous_commit', 'off', true)::text AS commits
  FROM turn;
