-- One row for each name and each place that the session has in its queue. It tells all of a name that somebody has as a whole, and of one that nobody
-- has or waits for; of the others LookShared does.
-- name: Look :many
SELECT l.name, COALESCE(l.session_id, '') AS session_id, l.host, l.thread, l.attempt, l.first_token, l.last_token, l.acquired_at, l.waiters, l.expires_at,
       l.shared_units, l.capacity, l.rests_until,
       CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us,
       CAST(COALESCE(IF(s.dead = 0, h.expires_at, 0), 0) AS SIGNED) AS session_expires_at,
       w.attempt AS queued
  FROM dblock_locks l
  LEFT JOIN dblock_sessions s ON s.id = l.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
  LEFT JOIN dblock_waiters w ON w.name = l.name AND w.session_id = sqlc.arg(session)
 WHERE l.name IN (sqlc.slice(names));

-- The same of names that are shared, or free with a queue: a row for each name (part 0), the share
-- whose time is over first and those of the session (1), the session's places in the queue (2), and
-- the first place (3). One statement: between two, a grant would be missed by both. units is of the
-- name what all have, sharing how many they are, token of a place its ticket. capacity is of the first place what it states.
-- name: LookShared :many
SELECT l.name, CAST(0 AS SIGNED) AS part, COALESCE(l.session_id, '') AS session_id, l.host, l.thread, l.attempt, l.last_token AS token, l.first_token, l.shared_units AS units,
       l.acquired_at AS since, l.expires_at, CAST(COALESCE(IF(s.dead = 0, h.expires_at, 0), 0) AS SIGNED) AS session_expires_at,
       l.waiters, CAST(IF(l.mixed = 1, COALESCE((SELECT MIN(m.capacity) FROM dblock_shares m WHERE m.name = l.name), 0), l.capacity) AS SIGNED) AS capacity,
       l.rests_until, CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us, CAST(0 AS SIGNED) AS sharing
  FROM dblock_locks l
  LEFT JOIN dblock_sessions s ON s.id = l.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
 WHERE l.name IN (sqlc.slice(names))
UNION ALL
SELECT t.name, 1, t.session_id, t.host, t.thread, t.attempt, t.token, t.token, t.units, t.acquired_at, t.expires_at, t.session_expires_at, 0, 0, 0, 0, t.sharing
  FROM (SELECT r.name, r.session_id, r.host, r.thread, r.attempt, r.token, r.units, r.acquired_at, r.expires_at,
               COALESCE(IF(s.dead = 0, h.expires_at, 0), 0) AS session_expires_at, COUNT(*) OVER (PARTITION BY r.name) AS sharing,
               r.session_id = sqlc.arg(session) AS own,
               ROW_NUMBER() OVER (PARTITION BY r.name
                                  ORDER BY LEAST(COALESCE(IF(s.dead = 0, h.expires_at, 0), 0), COALESCE(r.expires_at, 9223372036854775807)), r.token) AS place
          FROM dblock_shares r
          LEFT JOIN dblock_sessions s ON s.id = r.session_id
          LEFT JOIN dblock_heartbeats h ON h.session_id = r.session_id
         WHERE r.name IN (sqlc.slice(names))) t
 WHERE t.place = 1 OR t.own = 1
UNION ALL
SELECT w.name, 2, w.session_id, w.host, w.thread, w.attempt, w.ticket, 0, w.units, w.enqueued_at, NULL, 0, 0, 0, 0, 0, 0
  FROM dblock_waiters w
 WHERE w.name IN (sqlc.slice(names)) AND w.session_id = sqlc.arg(session)
UNION ALL
SELECT w.name, 3, w.session_id, w.host, w.thread, w.attempt, w.ticket, 0, w.units, w.enqueued_at, NULL,
       COALESCE(IF(s.dead = 0, h.expires_at, 0), 0), 0, w.capacity, 0, 0, 0
  FROM dblock_locks l
  JOIN dblock_waiters w ON w.name = l.name AND w.ticket = (SELECT MIN(x.ticket) FROM dblock_waiters x WHERE x.name = l.name)
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id
 WHERE l.name IN (sqlc.slice(names));
