-- One row for each name and each attempt of the session's that waits for it (own_token 0), or holds a share of it. Of several
-- holders it is the one whose time is over first. The first in the queue counts where nobody has the whole name.
-- name: Look :many
SELECT l.name, coalesce(l.session_id, s.session_id, '')::text AS session, coalesce(s.host, l.host)::text AS host,
       coalesce(s.thread, l.thread)::text AS thread, coalesce(s.attempt, l.attempt)::text AS attempt, coalesce(s.token, l.last_token)::bigint AS token,
       coalesce(s.units, 0)::integer AS units, coalesce(s.acquired_at, l.acquired_at)::bigint AS acquired_at,
       coalesce(CASE WHEN l.session_id IS NULL THEN s.expires_at ELSE l.expires_at END, 0)::bigint AS expires_at,
       coalesce(CASE WHEN l.session_id IS NULL THEN s.ends_at ELSE h.expires_at END, 0)::bigint AS session_expires_at,
       CASE WHEN l.shared_units > 0 THEN (SELECT count(*) FROM dblock_shares c WHERE c.name = l.name) ELSE 0 END::integer AS sharing,
       l.shared_units, CASE WHEN l.shared_units > 0 OR l.waiters > 0 THEN l.capacity ELSE 0 END::integer AS capacity,
       l.waiters, l.rests_until, l.first_token, l.last_token, dblock_now() AS now,
       coalesce(q.session_id, '')::text AS head_session, coalesce(q.host, '')::text AS head_host, coalesce(q.thread, '')::text AS head_thread,
       coalesce(q.attempt, '')::text AS head_attempt, coalesce(q.units, 0)::integer AS head_units,
       coalesce(q.enqueued_at, 0)::bigint AS head_since, coalesce(q.ends_at, 0)::bigint AS head_ends_at,
       coalesce(q.attempt IS NOT NULL AND l.rests_until <= dblock_now()
                AND (l.shared_units = 0 OR q.units > 0 AND l.shared_units::bigint + q.units <= least(l.capacity, q.capacity)), false)::boolean AS ready,
       coalesce(own.attempt, '')::text AS own_attempt, coalesce(own.token, 0)::bigint AS own_token, coalesce(own.expires_at, 0)::bigint AS own_expires_at
  FROM dblock_locks l
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
  LEFT JOIN LATERAL (
       SELECT v.*, b.expires_at AS ends_at FROM dblock_shares v LEFT JOIN dblock_heartbeats b ON b.session_id = v.session_id
        WHERE v.name = l.name AND l.session_id IS NULL AND l.shared_units > 0
        ORDER BY least(coalesce(b.expires_at, 0), v.expires_at) LIMIT 1) s ON true
  LEFT JOIN LATERAL (
       SELECT w.session_id, w.host, w.thread, w.attempt, w.units, w.capacity, w.enqueued_at, b.expires_at AS ends_at
         FROM dblock_waiters w LEFT JOIN dblock_heartbeats b ON b.session_id = w.session_id
        WHERE w.name = l.name AND w.ticket >= l.first_ticket AND l.session_id IS NULL AND l.waiters > 0
        ORDER BY w.ticket LIMIT 1) q ON true
  LEFT JOIN LATERAL (
       SELECT w.attempt, 0 AS token, NULL AS expires_at FROM dblock_waiters w
        WHERE w.name = l.name AND w.session_id = sqlc.arg(session)::text AND l.waiters > 0
        UNION ALL
       SELECT v.attempt, v.token, v.expires_at FROM dblock_shares v
        WHERE v.name = l.name AND v.session_id = sqlc.arg(session)::text AND l.shared_units > 0) own ON true
 WHERE l.name = ANY (ARRAY(SELECT jsonb_array_elements_text(sqlc.arg(names)::text::jsonb)));
