-- What happens between LockRow and COMMIT when a name changes hands: something is given up, and
-- what that makes room for is handed on. Each statement has a snapshot of its own, from after the
-- row was locked.

-- Gives up a share, which its holder has by session and token, or by session and attempt; with
-- reclaim it must also be dead, or over its fixed lease. The row that is deleted says how much
-- there is to subtract, so that nobody subtracts it twice. Where the holders state several numbers
-- of units, the smallest of those that are left is looked up. lazily: where nobody waits the commit
-- need not reach the disk, as in ReleaseIdle.
-- name: GiveUpShare :one
WITH share AS (
    DELETE FROM dblock_shares s
     WHERE s.name = @name AND s.session_id = sqlc.arg(session)::text
       AND s.token = CASE WHEN sqlc.arg(token)::bigint > 0 THEN sqlc.arg(token)::bigint
                          ELSE (SELECT a.token FROM dblock_shares a WHERE a.attempt = @attempt AND a.name = @name) END
       AND (NOT sqlc.arg(reclaim)::boolean OR s.expires_at <= dblock_now()
            OR EXISTS (SELECT 1 FROM dblock_sessions d WHERE d.id = s.session_id AND d.dead))
    RETURNING s.name, s.token, s.units
)
UPDATE dblock_locks l SET shared_units = l.shared_units - share.units, acquired_at = dblock_now(),
       (capacity, mixed) = (SELECT coalesce(min(o.capacity), l.capacity), coalesce(min(o.capacity) < max(o.capacity), false)
                              FROM dblock_shares o WHERE l.mixed AND o.name = share.name AND o.token <> share.token)
  FROM share WHERE l.name = share.name
RETURNING l.name, coalesce(CASE WHEN sqlc.arg(lazily)::boolean AND l.waiters = 0 THEN set_config('synchronous_commit', 'off', true) END, '')::text AS commits;

-- After LockRow: the common case of HandOver, in a statement that is planned and run in a fraction of
-- the time. The holder's whole name goes to the head of the queue: if the head lives, if it wants
-- the whole name too, and if the name does not cool down. A head with a fixed lease or a cool-down
-- of its own is left to HandOver, which tells the waiter behind it. A run that ends, or one that may
-- begin, is left to HandToRun. No row: nothing was done. All conditions stand with the DELETE, so
-- that no ticket goes without a grant: under the row's lock nothing of what they read can change but
-- a heartbeat.
-- name: HandToHead :one
WITH head AS (
    DELETE FROM dblock_waiters q USING dblock_locks l, dblock_heartbeats h
     WHERE l.name = @name AND l.session_id = sqlc.arg(session)::text AND l.last_token = @token AND l.rests_until <= dblock_now()
       AND l.first_token = l.last_token
       AND q.ctid = (SELECT w.ctid FROM dblock_waiters w
                      WHERE w.name = @name AND w.ticket >= (SELECT b.first_ticket FROM dblock_locks b WHERE b.name = @name) ORDER BY w.ticket LIMIT 1)
       AND NOT (q.passable AND EXISTS (
           SELECT 1 FROM (SELECT n.passable, n.session_id FROM dblock_waiters n WHERE n.name = q.name AND n.ticket > q.ticket ORDER BY n.ticket LIMIT 1) b
            WHERE b.passable AND b.session_id = q.session_id))
       AND q.units = 0 AND q.lease = 0 AND q.min_hold = 0
       AND h.session_id = q.session_id AND h.expires_at > dblock_now()
    RETURNING q.name, q.ticket, q.session_id, q.host, q.thread, q.attempt, q.metadata, greatest(l.token + 1, dblock_now()) AS token
)
UPDATE dblock_locks c SET
       session_id = head.session_id, host = head.host, thread = head.thread, holds = 1, attempt = head.attempt, asked = '',
       metadata = head.metadata, expires_at = NULL, token = head.token, first_token = head.token, last_token = head.token,
       acquired_at = dblock_now(), waiters = c.waiters - 1, first_ticket = head.ticket
  FROM head WHERE c.name = head.name
RETURNING head.session_id AS session, c.attempt, c.token, c.waiters, dblock_durable() AS durable,
          coalesce(CASE WHEN head.session_id <> sqlc.arg(session)::text
                        THEN pg_notify('dblock_' || head.session_id, concat_ws(' ', c.attempt, c.token, c.waiters))::text END, '')::text AS notified;

-- HandToHead where a run ends, or begins. Of the run that ends, the members' places go: they are the
-- first of the queue, fewer than 64. Where the head is passable, those behind it become its members,
-- up to the first that is of another session or not passable. One row for each grant, in the order
-- of their tokens, in which the session is told of its attempts, too.
--
-- The first places are read once, through the index, and found by their addresses (ctid) from then
-- on: under the row's lock they stay there. What the planner believes of the queue, or of an index
-- full of places that have left, makes no difference.
-- name: HandToRun :many
WITH places AS MATERIALIZED (
    SELECT w.ctid AS at, w.ticket, w.token, w.session_id, w.passable FROM dblock_waiters w
     WHERE w.name = @name AND w.ticket >= (SELECT b.first_ticket FROM dblock_locks b WHERE b.name = @name)
     ORDER BY w.ticket LIMIT (SELECT 63 + 64)
), head AS (
    DELETE FROM dblock_waiters q USING dblock_locks l, dblock_heartbeats h
     WHERE l.name = @name AND l.session_id = sqlc.arg(session)::text AND l.last_token = @token AND l.rests_until <= dblock_now()
       AND q.ctid = (SELECT p.at FROM places p WHERE p.token = 0 ORDER BY p.ticket LIMIT 1)
       AND q.units = 0 AND q.lease = 0 AND q.min_hold = 0
       AND h.session_id = q.session_id AND h.expires_at > dblock_now()
    RETURNING q.name, q.ticket, q.session_id, q.host, q.thread, q.attempt, q.metadata, q.passable,
              greatest(l.token + 1, dblock_now()) AS token, l.first_token < l.last_token AS ends_run
), served AS (
    DELETE FROM dblock_waiters m USING head, places WHERE head.ends_run AND places.token > 0 AND m.ctid = places.at
    RETURNING m.ticket
), next AS MATERIALIZED (
    SELECT p.at, row_number() OVER (ORDER BY p.ticket) AS nth,
           bool_and(p.passable AND p.session_id = head.session_id) OVER (ORDER BY p.ticket) AS follows
      FROM head JOIN places p ON head.passable AND p.ticket > head.ticket
), members AS (
    UPDATE dblock_waiters m SET token = head.token + next.nth FROM head, next
     WHERE next.follows AND next.nth < 64 AND m.ctid = next.at
    RETURNING m.attempt, m.token
), given AS (
    UPDATE dblock_locks c SET
           session_id = head.session_id, host = head.host, thread = head.thread, holds = 1, attempt = head.attempt, asked = '',
           metadata = head.metadata, expires_at = NULL, acquired_at = dblock_now(), first_token = head.token,
           token = head.token + (SELECT count(*) FROM members), last_token = head.token + (SELECT count(*) FROM members),
           waiters = c.waiters - 1 - (SELECT count(*) FROM served)::integer, first_ticket = head.ticket
      FROM head WHERE c.name = head.name
    RETURNING c.session_id, c.attempt, c.first_token, c.last_token, c.waiters, dblock_durable() AS durable
)
SELECT given.session_id::text AS session, g.attempt, g.token::bigint AS token, given.waiters, given.first_token AS first, given.last_token AS last, given.durable,
       coalesce(CASE WHEN g.heads AND given.session_id <> sqlc.arg(session)::text THEN pg_notify('dblock_' || given.session_id,
           concat_ws(' ', g.attempt, (SELECT string_agg(members.attempt, ',' ORDER BY members.token) FROM members), g.token, given.waiters))::text END, '')::text AS notified
  FROM given CROSS JOIN (SELECT head.attempt, head.token, true AS heads FROM head UNION ALL SELECT members.attempt, members.token, false FROM members) g
 ORDER BY g.token;

-- Gives up the whole name, if it is held so, named as in GiveUpShare; and then what is free of it
-- to the waiters, in the order of their tickets, until the first that lives (the dead have no
-- heartbeat row) and does not fit. The dead before that one leave the queue. While the name cools
-- down it goes to nobody. A waiter that has to look later, for the end of that or of a lease, is
-- told. One row for each waiter that gets it, or else one without a session; no row: the name is
-- another's. Runs end and begin as in HandToHead: served is the last place of a member, or the
-- ticket before the first.
--
-- A row that LockRow did not find may have come since, and change while it is locked here: the
-- queue would be that of an older snapshot. Then (it is not where it was seen) nothing is handed
-- on: the transaction that changed it did that.
-- name: HandOver :many
WITH RECURSIVE l AS MATERIALIZED (
    SELECT c.name, c.shared_units, c.capacity, c.mixed, c.waiters, c.session_id IS NOT NULL AS given, dblock_now() AS now,
           greatest(c.token + 1, dblock_now()) AS token, c.waiters > 0 AND c.rests_until <= dblock_now() AS wanted,
           CASE WHEN c.session_id IS NOT NULL AND c.first_token < c.last_token THEN coalesce((
                SELECT max(f.ticket)
                  FROM (SELECT w.ticket, w.token FROM dblock_waiters w WHERE w.name = @name AND w.ticket >= c.first_ticket ORDER BY w.ticket LIMIT (SELECT 64)) f
                 WHERE f.token > 0), c.first_ticket - 1) ELSE c.first_ticket - 1 END AS served, c.first_ticket
      FROM dblock_locks c JOIN dblock_locks seen ON seen.name = c.name AND seen.ctid = c.ctid
     WHERE c.name = @name
       AND (c.session_id IS NULL
            OR c.session_id = sqlc.arg(session)::text AND (c.last_token = @token OR c.attempt = @attempt)
               AND (NOT sqlc.arg(reclaim)::boolean OR c.expires_at <= dblock_now()
                    OR EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = c.session_id AND s.dead)))
       FOR UPDATE OF c
), walk AS ( -- from one of the living to the next; nth counts them, used is what is taken with them, fits ends it
    SELECT l.served::bigint AS ticket, 0::bigint AS nth, l.shared_units::bigint AS used, l.capacity, l.mixed, false AS whole, true AS fits FROM l WHERE l.wanted
     UNION ALL
    SELECT w.ticket, walk.nth + 1, walk.used + w.units, CASE WHEN walk.used = 0 THEN w.capacity ELSE least(walk.capacity, w.capacity) END,
           walk.used > 0 AND (walk.mixed OR walk.capacity <> w.capacity), w.units = 0,
           NOT walk.whole AND (walk.used = 0 OR w.units > 0 AND walk.used + w.units <= least(walk.capacity, w.capacity))
      FROM walk CROSS JOIN l CROSS JOIN LATERAL (
           SELECT q.ticket, q.units, q.capacity FROM dblock_waiters q
            WHERE q.name = l.name AND q.ticket > walk.ticket
              AND EXISTS (SELECT 1 FROM dblock_heartbeats h WHERE h.session_id = q.session_id
                             AND (h.expires_at > dblock_now() OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable')))
            ORDER BY q.ticket LIMIT 1) w
     WHERE walk.fits
), stop AS MATERIALIZED (
    SELECT coalesce(min(walk.ticket), 9223372036854775807) AS ticket FROM walk WHERE NOT walk.fits
), gone AS (
    DELETE FROM dblock_waiters q
     WHERE q.name = (SELECT l.name FROM l) AND q.ticket >= (SELECT l.first_ticket FROM l)
       AND q.ticket < (SELECT CASE WHEN l.wanted THEN stop.ticket ELSE l.served + 1 END FROM l CROSS JOIN stop)
    RETURNING q.name, q.ticket, q.session_id, q.host, q.thread, q.attempt, q.lease, q.metadata, q.units, q.capacity, q.min_hold, q.passable
), granted AS (
    SELECT gone.name, gone.ticket, gone.session_id, gone.host, gone.thread, gone.attempt, gone.lease, gone.metadata, gone.units, gone.capacity,
           gone.min_hold, gone.passable, l.token + walk.nth - 1 AS token, l.now, CASE WHEN gone.lease > 0 THEN l.now + gone.lease END AS expires_at
      FROM gone JOIN walk ON walk.ticket = gone.ticket CROSS JOIN l
     WHERE walk.fits AND walk.nth > 0
), head AS MATERIALIZED (
    SELECT g.name, g.ticket, g.session_id, g.token FROM granted g WHERE g.units = 0 AND g.passable
), next AS MATERIALIZED (
    SELECT p.at, row_number() OVER (ORDER BY p.ticket) AS nth,
           bool_and(p.passable AND p.session_id = head.session_id) OVER (ORDER BY p.ticket) AS follows
      FROM head CROSS JOIN LATERAL (
           SELECT w.ctid AS at, w.ticket, w.session_id, w.passable FROM dblock_waiters w
            WHERE w.name = head.name AND w.ticket > head.ticket ORDER BY w.ticket LIMIT (SELECT 63)) p
), members AS (
    UPDATE dblock_waiters m SET token = head.token + next.nth FROM head, next WHERE next.follows AND m.ctid = next.at
    RETURNING m.session_id, m.attempt, m.token
), shares AS (
    INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, capacity, acquired_at, expires_at, metadata)
    SELECT g.name, g.token, g.session_id, g.host, g.thread, g.attempt, g.units, g.capacity, g.now, g.expires_at, g.metadata
      FROM granted g WHERE g.units > 0
), sums AS MATERIALIZED (
    SELECT max(g.token) + (SELECT count(*) FROM members) AS token, coalesce(sum(g.units), 0)::integer AS units FROM granted g
), shared AS MATERIALIZED ( -- the name with the last share that is granted
    SELECT walk.capacity, walk.mixed FROM walk WHERE walk.fits AND walk.nth > 0 AND NOT walk.whole ORDER BY walk.nth DESC LIMIT 1
), after AS (
    UPDATE dblock_locks c SET
           session_id = whole.session_id, host = coalesce(whole.host, ''), thread = coalesce(whole.thread, ''),
           holds = CASE WHEN whole.attempt IS NULL THEN 0 ELSE 1 END, attempt = coalesce(whole.attempt, ''), asked = '',
           metadata = coalesce(whole.metadata, ''), expires_at = whole.expires_at,
           rests_until = CASE WHEN whole.min_hold > 0 THEN whole.now + whole.min_hold ELSE c.rests_until END,
           token = coalesce(sums.token, c.token), first_token = coalesce(whole.token, c.first_token),
           first_ticket = coalesce((SELECT max(gone.ticket) FROM gone), c.first_ticket),
           last_token = CASE WHEN whole.token IS NULL THEN c.last_token ELSE sums.token END,
           acquired_at = l.now, shared_units = c.shared_units + sums.units,
           capacity = coalesce(shared.capacity, c.capacity), mixed = coalesce(shared.mixed, c.mixed),
           waiters = CASE WHEN l.wanted AND stop.ticket = 9223372036854775807 THEN 0
                          ELSE c.waiters - (SELECT count(*) FROM gone)::integer END
      FROM l CROSS JOIN stop CROSS JOIN sums LEFT JOIN shared ON true LEFT JOIN granted whole ON whole.units = 0
     WHERE c.name = l.name AND (l.given OR l.wanted AND (stop.ticket = 9223372036854775807 OR EXISTS (SELECT 1 FROM gone)))
    RETURNING c.waiters, l.given
), behind AS MATERIALIZED ( -- the first waiter that is left, where something can be had at a time that it does not know of
    SELECT q.session_id, q.attempt
      FROM l CROSS JOIN stop CROSS JOIN LATERAL (
           SELECT w.session_id, w.attempt FROM dblock_waiters w
            WHERE w.name = l.name AND w.ticket > l.served AND (NOT l.wanted OR w.ticket >= stop.ticket)
              AND EXISTS (SELECT 1 FROM dblock_heartbeats h WHERE h.session_id = w.session_id AND h.expires_at > dblock_now())
            ORDER BY w.ticket LIMIT 1) q
     WHERE l.waiters > 0 AND (NOT l.wanted OR EXISTS (SELECT 1 FROM granted g WHERE g.lease > 0 OR g.min_hold > 0))
)
SELECT coalesce(after.given, false)::boolean AS given, coalesce(g.session_id, '')::text AS session, coalesce(g.attempt, '')::text AS attempt,
       coalesce(g.token, 0)::bigint AS token, coalesce(after.waiters, 0)::integer AS waiters, coalesce(g.lease, 0)::bigint AS lease,
       coalesce(run.first, 0)::bigint AS first, coalesce(run.last, 0)::bigint AS last, dblock_durable() AS durable,
       coalesce(CASE WHEN g.heads AND g.session_id <> sqlc.arg(self)::text THEN pg_notify('dblock_' || g.session_id,
           CASE WHEN g.lease = 0 THEN concat_ws(' ', g.attempt, (SELECT string_agg(members.attempt, ',' ORDER BY members.token) FROM members),
                g.token, after.waiters) ELSE g.attempt END)::text END, '')::text AS notified,
       coalesce((SELECT pg_notify('dblock_' || b.session_id, b.attempt)::text FROM behind b), '')::text AS forewarned
  FROM l LEFT JOIN after ON true CROSS JOIN (SELECT min(members.token) - 1 AS first, max(members.token) AS last FROM members) run LEFT JOIN (
       SELECT granted.session_id, granted.attempt, granted.token, granted.lease, true AS heads FROM granted
        UNION ALL
       SELECT members.session_id, members.attempt, members.token, 0, false FROM members) g ON true
 ORDER BY g.token;

-- After LockGuard, before it is given up: what is taken from the living is written down, and they
-- are told.
-- name: RecordBroken :exec
INSERT INTO dblock_events (at, name, kind, token, session_id, host, thread, detail, metadata)
SELECT dblock_now(), h.name, @kind, sqlc.arg(event_token)::bigint, sqlc.arg(event_session)::text, sqlc.arg(event_host)::text, sqlc.arg(event_thread)::text, @detail, @metadata
  FROM dblock_holders h
 WHERE h.name = sqlc.arg(name)::text AND h.session_id = sqlc.arg(session)::text AND h.token = sqlc.arg(token)::bigint
RETURNING id, pg_notify('dblock_' || sqlc.arg(session)::text, sqlc.arg(attempt)::text)::text AS notified;
