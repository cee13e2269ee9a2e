-- A row for each name and each attempt of the session's that waits for it, one for the share whose time is over first and each
-- of the session's (part 1), and one for the first place in the queue where nobody has the whole name (3). Package inspection
-- says what the columns are. sqlc does not know columns of an outer row, but casts.
-- name: Look :many
SELECT l.name, p.part::bigint AS part, coalesce(p.session_id, '')::text AS session_id, p.host, p.thread, p.attempt, p.token, p.first_token,
       p.units::bigint AS units, p.since, coalesce(p.expires_at, 0)::bigint AS expires_at,
       coalesce((SELECT b.expires_at FROM dblock_heartbeats b WHERE b.session_id = p.session_id), 0)::bigint AS session_expires_at,
       p.capacity::bigint AS capacity, l.waiters::bigint AS waiters, l.rests_until, p.sharing::bigint AS sharing, dblock_now() AS now_us,
       coalesce(p.queued, '')::text AS queued
  FROM dblock_locks l
 CROSS JOIN LATERAL (
       SELECT 0 AS part, l.session_id::text AS session_id, l.host::text AS host, l.thread::text AS thread, l.attempt::text AS attempt,
              l.last_token::bigint AS token, l.first_token::bigint AS first_token, l.shared_units::integer AS units, l.acquired_at::bigint AS since,
              l.expires_at::bigint AS expires_at, l.capacity::integer AS capacity, 0 AS sharing, w.attempt AS queued
         FROM (SELECT 1) one LEFT JOIN dblock_waiters w ON w.name = l.name AND w.session_id = sqlc.arg(session)::text AND l.waiters > 0
        UNION ALL
       SELECT 1, v.session_id, v.host, v.thread, v.attempt, v.token, v.token, v.units, v.acquired_at, v.expires_at, 0, v.sharing, ''
         FROM (SELECT s.*, count(*) OVER () AS sharing, row_number() OVER (ORDER BY least(coalesce(b.expires_at, 0), s.expires_at), s.token) AS nth
                 FROM dblock_shares s LEFT JOIN dblock_heartbeats b ON b.session_id = s.session_id
                WHERE s.name = l.name AND l.shared_units > 0) v
        WHERE v.nth = 1 OR v.session_id = sqlc.arg(session)::text
        UNION ALL
      (SELECT 3, w.session_id, w.host, w.thread, w.attempt, 0, 0, w.units, w.enqueued_at, NULL, w.capacity, 0, ''
         FROM dblock_waiters w
        WHERE w.name = l.name AND w.ticket >= l.first_ticket AND l.session_id IS NULL AND l.waiters > 0
        ORDER BY w.ticket LIMIT 1)) p
 WHERE l.name = ANY (ARRAY(SELECT jsonb_array_elements_text(sqlc.arg(names)::text::jsonb)));
