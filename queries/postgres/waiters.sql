-- Joins the queue of a name that cannot be had at once, in one statement: it decides by the lock
-- row alone, and the ticket comes from that row, locked. What is free is not queued for, since
-- nobody would hand it on. Its commit need not reach the disk: a place that a crash takes away is
-- put back by its owner. Where nobody shares the name, the first waiter for units says what the
-- queue is for.
-- name: JoinQueue :one
WITH timeout AS MATERIALIZED (
    SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true)
), l AS (
    UPDATE dblock_locks q SET waiters = q.waiters + 1, next_ticket = q.next_ticket + 1,
           capacity = CASE WHEN (q.shared_units > 0 OR q.waiters > 0) AND q.capacity > 0 THEN q.capacity ELSE sqlc.arg(capacity)::integer END
      FROM timeout
     WHERE q.name = @name
       AND (q.session_id IS NOT NULL OR q.waiters > 0 OR q.rests_until > dblock_now()
            OR CASE WHEN sqlc.arg(units)::integer = 0 THEN q.shared_units > 0
                    ELSE q.shared_units > 0 AND q.shared_units::bigint + sqlc.arg(units)::integer > least(q.capacity, sqlc.arg(capacity)::integer) END)
       AND (sqlc.arg(units)::integer = 0 OR q.shared_units = 0 AND q.waiters = 0 OR q.capacity = 0
            OR (q.capacity = 2147483647) = (sqlc.arg(capacity)::integer = 2147483647))
    RETURNING q.name, q.next_ticket - 1 AS ticket
)
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, capacity, min_hold, passable)
SELECT l.name, l.ticket, @session, @host, @thread, @attempt, @lease, @metadata, dblock_now(), sqlc.arg(units)::integer, sqlc.arg(capacity)::integer,
       @min_hold, @passable FROM l
RETURNING ticket, set_config('synchronous_commit', 'off', true)::text AS commits;

-- The same for several requests of a session, all for the whole name: a ticket for each, in the
-- order given. The INSERT reads nothing but the row that the UPDATE has locked.
-- name: JoinTogether :one
WITH timeout AS MATERIALIZED (
    SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true)
), want AS MATERIALIZED (
    SELECT j.r, j.nth FROM jsonb_array_elements(sqlc.arg(requests)::text::jsonb) WITH ORDINALITY AS j (r, nth)
), l AS (
    UPDATE dblock_locks q SET waiters = q.waiters + (SELECT count(*) FROM want)::integer, next_ticket = q.next_ticket + (SELECT count(*) FROM want),
           capacity = CASE WHEN q.shared_units > 0 OR q.waiters > 0 THEN q.capacity ELSE 0 END
      FROM timeout
     WHERE q.name = @name
       AND (q.session_id IS NOT NULL OR q.waiters > 0 OR q.rests_until > dblock_now() OR q.shared_units > 0)
    RETURNING q.name, q.next_ticket AS next
), places AS (
    INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, min_hold, passable)
    SELECT l.name, l.next - (SELECT count(*) FROM want) + want.nth - 1, want.r ->> 'Session', want.r ->> 'Host', want.r ->> 'Thread', want.r ->> 'Attempt',
           (want.r ->> 'Lease')::bigint, want.r ->> 'Metadata', dblock_now(), (want.r ->> 'MinHold')::bigint, (want.r ->> 'Passable')::boolean
      FROM l CROSS JOIN want
    RETURNING ticket
)
SELECT min(places.ticket)::bigint AS ticket, set_config('synchronous_commit', 'off', true)::text AS commits FROM places HAVING count(*) > 0;

-- After JoinQueue: why it did nothing, if it was not that the name is free.
-- name: OtherCapacity :one
SELECT l.capacity FROM dblock_locks l
 WHERE l.name = @name AND (l.shared_units > 0 OR l.waiters > 0) AND l.capacity > 0
   AND (l.capacity = 2147483647) <> (sqlc.arg(capacity)::integer = 2147483647);

-- After LockRow. Members of a run leave it like waiters. Each place is looked up by itself, as in
-- BatchRows, whatever the planner believes: of a LIMIT that is not a constant it expects little.
-- name: LeaveQueue :one
WITH places AS MATERIALIZED (
    SELECT q.at
      FROM (SELECT jsonb_array_elements_text(sqlc.arg(attempts)::text::jsonb) COLLATE "C" AS attempt) a
     CROSS JOIN LATERAL (SELECT f.ctid AS at, f.name, f.session_id FROM dblock_waiters f WHERE f.attempt = a.attempt LIMIT 1) q
     WHERE q.name = sqlc.arg(name)::text AND q.session_id = sqlc.arg(session)::text
     LIMIT (SELECT jsonb_array_length(sqlc.arg(attempts)::text::jsonb))
), gone AS (
    DELETE FROM dblock_waiters w USING places WHERE w.ctid = places.at RETURNING w.name
), counted AS (
    SELECT gone.name, count(*)::integer AS n FROM gone GROUP BY gone.name
)
UPDATE dblock_locks l SET waiters = l.waiters - counted.n FROM counted WHERE l.name = counted.name
RETURNING l.name;
