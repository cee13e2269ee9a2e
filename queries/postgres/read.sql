-- A name as a session sees it. Part 0: the name, a row for each place of the session in its queue, or one. Part 1: the
-- share that expires first, and those of the session. Part 2: the first place in the queue, unless one holder has the whole
-- name. Package inspection describes the columns. The casts are for sqlc, which does not know the columns of an outer row.
-- name: Read :many
SELECT l.name, p.part::bigint AS part, p.place, coalesce(p.session_id, '')::text AS session_id, p.host, p.thread, p.attempt, p.token, p.first_token,
       p.units::bigint AS units, p.since, coalesce(p.expires_at, 0)::bigint AS expires_at,
       coalesce((SELECT b.expires_at FROM dblock_heartbeats b WHERE b.session_id = p.session_id), 0)::bigint AS session_expires_at,
       p.capacity::bigint AS capacity, l.waiters::bigint AS waiters, l.rests_until, p.sharing::bigint AS sharing, dblock_now() AS now_us,
       coalesce(p.queued, '')::text AS queued, ''::text AS metadata, ''::text AS asked, ''::text AS app, 0::bigint AS pid,
       ''::text AS buried
  FROM (SELECT n.name, (SELECT e FROM dblock_epoch(n.name) e) AS epoch
          FROM unnest(ARRAY(SELECT DISTINCT jsonb_array_elements_text(sqlc.arg(names)::text::jsonb) COLLATE "C")) n (name)) n
 CROSS JOIN LATERAL (SELECT c.* FROM dblock_locks c WHERE c.name = n.name AND c.epoch >= n.epoch OFFSET 0) l
 CROSS JOIN LATERAL (
       SELECT 0 AS part, l.token::bigint AS place, l.session_id::text AS session_id, l.host::text AS host, l.thread::text AS thread,
              l.attempt::text AS attempt, l.last_token::bigint AS token, l.first_token::bigint AS first_token, l.shared_units::integer AS units,
              l.acquired_at::bigint AS since, l.expires_at::bigint AS expires_at, l.capacity::integer AS capacity, 0 AS sharing, w.attempt AS queued
         FROM (SELECT 1) one LEFT JOIN dblock_waiters w
           ON w.name = l.name AND w.session_id = sqlc.arg(session)::text AND w.ticket >= l.first_ticket
        UNION ALL
       SELECT 1, v.token, v.session_id, v.host, v.thread, v.attempt, v.token, v.token, v.units, v.acquired_at, v.expires_at, 0, v.sharing, ''
         FROM (SELECT s.*, count(*) OVER () AS sharing, row_number() OVER (ORDER BY least(coalesce(b.expires_at, 0), s.expires_at), s.token) AS nth
                 FROM dblock_shares s LEFT JOIN dblock_heartbeats b ON b.session_id = s.session_id
                WHERE s.name = l.name AND l.shared_units > 0) v
        WHERE v.nth = 1 OR v.session_id = sqlc.arg(session)::text
        UNION ALL
      (SELECT 2, w.ticket, w.session_id, w.host, w.thread, w.attempt, 0, 0, w.units, w.enqueued_at, NULL, w.capacity, 0, ''
         FROM dblock_waiters w
        WHERE w.name = l.name AND w.ticket >= l.first_ticket AND l.session_id IS NULL AND l.waiters > 0
        ORDER BY w.ticket LIMIT 1)) p;

-- The same with all shares, and with at most so many places. It is a separate statement: with the limit as a parameter
-- of Read, PostgreSQL would expect many places, and plan each Read anew (a cost of 3,300 for any limit, and of 800 for
-- none).
-- name: ReadAll :many
SELECT l.name, p.part::bigint AS part, p.place, coalesce(p.session_id, '')::text AS session_id, p.host, p.thread, p.attempt, p.token, p.first_token,
       p.units::bigint AS units, p.since, coalesce(p.expires_at, 0)::bigint AS expires_at,
       CASE WHEN s.dead THEN 0 ELSE coalesce(b.expires_at, 0) END::bigint AS session_expires_at,
       p.capacity::bigint AS capacity, l.waiters::bigint AS waiters, l.rests_until, 0::bigint AS sharing, dblock_now() AS now_us,
       coalesce(p.queued, '')::text AS queued, p.metadata, p.asked, coalesce(s.app, '')::text AS app, coalesce(s.pid, 0)::bigint AS pid,
       coalesce(s.buried_because, '')::text AS buried
  FROM (SELECT n.name, (SELECT e FROM dblock_epoch(n.name) e) AS epoch
          FROM unnest(ARRAY(SELECT DISTINCT jsonb_array_elements_text(sqlc.arg(names)::text::jsonb) COLLATE "C")) n (name)) n
 CROSS JOIN LATERAL (SELECT c.* FROM dblock_locks c WHERE c.name = n.name AND c.epoch >= n.epoch OFFSET 0) l
 CROSS JOIN LATERAL (
       SELECT 0 AS part, l.token::bigint AS place, l.session_id::text AS session_id, l.host::text AS host, l.thread::text AS thread,
              l.attempt::text AS attempt, l.last_token::bigint AS token, l.first_token::bigint AS first_token, l.shared_units::integer AS units,
              l.acquired_at::bigint AS since, l.expires_at::bigint AS expires_at, l.capacity::integer AS capacity, w.attempt AS queued,
              l.metadata::text AS metadata, l.asked::text AS asked
         FROM (SELECT 1) one LEFT JOIN dblock_waiters w
           ON w.name = l.name AND w.session_id = sqlc.arg(session)::text AND w.ticket >= l.first_ticket
        UNION ALL
       SELECT 1, h.token, h.session_id, h.host, h.thread, h.attempt, h.token, h.token, h.units, h.acquired_at, h.expires_at, 0, '', h.metadata, h.asked
         FROM dblock_shares h WHERE h.name = l.name
        UNION ALL
      (SELECT 2, w.ticket, w.session_id, w.host, w.thread, w.attempt, 0, 0, w.units, w.enqueued_at, NULL, w.capacity, '', w.metadata, ''
         FROM dblock_waiters w WHERE w.name = l.name AND w.ticket >= l.first_ticket ORDER BY w.ticket LIMIT sqlc.arg(most))) p
  LEFT JOIN dblock_sessions s ON s.id = p.session_id
  LEFT JOIN dblock_heartbeats b ON b.session_id = p.session_id;
