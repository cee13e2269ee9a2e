-- One row for each name and each place that the session has in its queue. It tells all of a name that somebody has as a
-- whole, and of one that nobody has or waits for; of the others LookShared does. Package inspection says what the columns
-- are, here and there. The last row has no name.
-- name: Look :many
SELECT l.name, CAST(0 AS SIGNED) AS part, COALESCE(l.session_id, '') AS session_id, l.host, l.thread, l.attempt, l.last_token AS token, l.first_token,
       CAST(l.shared_units AS SIGNED) AS units, l.acquired_at AS since, CAST(COALESCE(l.expires_at, 0) AS SIGNED) AS expires_at,
       CAST(COALESCE(IF(s.dead = 0, h.expires_at, 0), 0) AS SIGNED) AS session_expires_at, CAST(l.capacity AS SIGNED) AS capacity,
       CAST(l.waiters AS SIGNED) AS waiters, l.rests_until, CAST(0 AS SIGNED) AS sharing,
       CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us, COALESCE(w.attempt, '') AS queued
  FROM dblock_locks l
  LEFT JOIN dblock_sessions s ON s.id = l.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
  LEFT JOIN dblock_waiters w ON w.name = l.name AND w.session_id = sqlc.arg(session)
 WHERE l.name IN (sqlc.slice(names))
UNION ALL
SELECT '', 0, '', '', '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '';

-- The same of names that are shared, or free with a queue, with the share whose time is over first and
-- those of the session (part 1), and the first place in the queue (3). One statement: between two, a
-- grant would be missed by both.
-- name: LookShared :many
SELECT l.name, CAST(0 AS SIGNED) AS part, COALESCE(l.session_id, '') AS session_id, l.host, l.thread, l.attempt, l.last_token AS token, l.first_token,
       CAST(l.shared_units AS SIGNED) AS units, l.acquired_at AS since, CAST(COALESCE(l.expires_at, 0) AS SIGNED) AS expires_at,
       CAST(COALESCE(IF(s.dead = 0, h.expires_at, 0), 0) AS SIGNED) AS session_expires_at,
       CAST(IF(l.mixed = 1, COALESCE((SELECT MIN(m.capacity) FROM dblock_shares m WHERE m.name = l.name), 0), l.capacity) AS SIGNED) AS capacity,
       CAST(l.waiters AS SIGNED) AS waiters, l.rests_until, CAST(0 AS SIGNED) AS sharing,
       CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us, COALESCE(w.attempt, '') AS queued
  FROM dblock_locks l
  LEFT JOIN dblock_sessions s ON s.id = l.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
  LEFT JOIN dblock_waiters w ON w.name = l.name AND w.session_id = sqlc.arg(session)
 WHERE l.name IN (sqlc.slice(names))
UNION ALL
SELECT t.name, 1, t.session_id, t.host, t.thread, t.attempt, t.token, t.token, t.units, t.acquired_at, COALESCE(t.expires_at, 0), t.session_expires_at,
       0, 0, 0, t.sharing, (SELECT c.now_us FROM dblock_clock c), ''
  FROM (SELECT r.name, r.session_id, r.host, r.thread, r.attempt, r.token, r.units, r.acquired_at, r.expires_at,
               COALESCE(IF(s.dead = 0, h.expires_at, 0), 0) AS session_expires_at, COUNT(*) OVER (PARTITION BY r.name) AS sharing,
               r.session_id = sqlc.arg(session) AS own,
               ROW_NUMBER() OVER (PARTITION BY r.name
                                  ORDER BY LEAST(COALESCE(IF(s.dead = 0, h.expires_at, 0), 0), COALESCE(r.expires_at, 9223372036854775807)), r.token) AS nth
          FROM dblock_shares r
          LEFT JOIN dblock_sessions s ON s.id = r.session_id
          LEFT JOIN dblock_heartbeats h ON h.session_id = r.session_id
         WHERE r.name IN (sqlc.slice(names))) t
 WHERE t.nth = 1 OR t.own = 1
UNION ALL
SELECT w.name, 3, w.session_id, w.host, w.thread, w.attempt, 0, 0, w.units, w.enqueued_at, 0, COALESCE(IF(s.dead = 0, h.expires_at, 0), 0),
       w.capacity, 0, 0, 0, (SELECT c.now_us FROM dblock_clock c), ''
  FROM dblock_locks l
  JOIN dblock_waiters w ON w.name = l.name AND w.ticket = (SELECT MIN(x.ticket) FROM dblock_waiters x WHERE x.name = l.name)
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id
 WHERE l.name IN (sqlc.slice(names))
UNION ALL
SELECT '', 0, '', '', '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '';
