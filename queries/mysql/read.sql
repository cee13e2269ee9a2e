-- One row for each name and each place that the session has in its queue. That is complete for a name with one holder
-- of the whole name, and for one without holders and waiters; the others need ReadAll. Package inspection describes the
-- columns, here and there. The last row has no name. FORCE INDEX, here and there: by the primary key all places of the name
-- would be read, and beside an old snapshot also each place that has ever left.
-- name: Read :many
SELECT l.name, CAST(0 AS SIGNED) AS part, l.token AS place, COALESCE(l.session_id, _ascii'') AS session_id, l.host, l.thread, l.attempt,
       l.last_token AS token, l.first_token, CAST(l.shared_units AS SIGNED) AS units, l.acquired_at AS since,
       CAST(COALESCE(l.expires_at, 0) AS SIGNED) AS expires_at, CAST(COALESCE(IF(s.dead = 0, h.expires_at, 0), 0) AS SIGNED) AS session_expires_at,
       CAST(l.capacity AS SIGNED) AS capacity, CAST(l.waiters AS SIGNED) AS waiters, l.rests_until, CAST(0 AS SIGNED) AS sharing,
       CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us, COALESCE(w.attempt, _ascii'') AS queued, '' AS metadata, '' AS asked,
       '' AS app, CAST(0 AS SIGNED) AS pid, '' AS buried
  FROM dblock_locks l
  LEFT JOIN dblock_sessions s ON s.id = l.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
  LEFT JOIN dblock_waiters w FORCE INDEX (dblock_waiters_session) ON w.session_id = sqlc.arg(session) AND w.name = l.name
 WHERE l.name IN (sqlc.slice(names))
UNION ALL
SELECT '', 0, 0, _ascii'', '', '', _ascii'', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, _ascii'', '', '', '', 0, '';

-- The same for any names, with shares (part 1: the one that expires first and those of the session; all if most > 0),
-- and with the places of each queue of at most most (part 2); of a longer queue with the first place and the number of
-- waiters. NextPlaces reads the places behind it. One statement: two could both miss a grant in between. The window
-- functions read no TEXT, which MariaDB keeps on disk (0.35 ms in place of 0.63). STRAIGHT_JOIN: the name's row comes
-- first. FORCE INDEX: MariaDB 11.8 would read every place of those names. ORDER BY and LIMIT read one place, MIN all of
-- a queue; on MySQL that needs the whole key in ORDER BY: by ticket alone it reads and sorts the queue, three times
-- over. most > 0 as a separate condition: without it MySQL plans for places that are not requested (0.37 ms in place of
-- 0.39).
-- name: ReadAll :many
SELECT l.name, CAST(0 AS SIGNED) AS part, l.token AS place, COALESCE(l.session_id, _ascii'') AS session_id, l.host, l.thread, l.attempt,
       l.last_token AS token, l.first_token, CAST(l.shared_units AS SIGNED) AS units, l.acquired_at AS since,
       CAST(COALESCE(l.expires_at, 0) AS SIGNED) AS expires_at, CAST(COALESCE(IF(s.dead = 0, h.expires_at, 0), 0) AS SIGNED) AS session_expires_at,
       CAST(IF(l.mixed = 1, COALESCE((SELECT MIN(m.capacity) FROM dblock_shares m WHERE m.name = l.name), 0), l.capacity) AS SIGNED) AS capacity,
       CAST(l.waiters AS SIGNED) AS waiters, l.rests_until, CAST(0 AS SIGNED) AS sharing,
       CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us, COALESCE(w.attempt, _ascii'') AS queued, l.metadata, COALESCE(l.asked, '') AS asked,
       COALESCE(s.app, '') AS app, CAST(COALESCE(s.pid, 0) AS SIGNED) AS pid, COALESCE(s.buried_because, '') AS buried
  FROM dblock_locks l
  LEFT JOIN dblock_sessions s ON s.id = l.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
  LEFT JOIN dblock_waiters w FORCE INDEX (dblock_waiters_session) ON w.session_id = sqlc.arg(session) AND w.name = l.name
 WHERE l.name IN (sqlc.slice(names))
UNION ALL
SELECT r.name, 1, r.token, r.session_id, r.host, r.thread, r.attempt, r.token, r.token, r.units, r.acquired_at, COALESCE(r.expires_at, 0),
       COALESCE(IF(s.dead = 0, h.expires_at, 0), 0), 0, 0, 0, t.sharing, (SELECT c.now_us FROM dblock_clock c), _ascii'', r.metadata,
       COALESCE(r.asked, ''), COALESCE(s.app, ''), COALESCE(s.pid, 0), COALESCE(s.buried_because, '')
  FROM (SELECT x.name, x.token, COUNT(*) OVER (PARTITION BY x.name) AS sharing,
               ROW_NUMBER() OVER (PARTITION BY x.name
                                  ORDER BY LEAST(COALESCE(IF(o.dead = 0, b.expires_at, 0), 0), COALESCE(x.expires_at, 9223372036854775807)), x.token) AS nth
          FROM dblock_shares x
          LEFT JOIN dblock_sessions o ON o.id = x.session_id
          LEFT JOIN dblock_heartbeats b ON b.session_id = x.session_id
         WHERE x.name IN (sqlc.slice(names))) t
 STRAIGHT_JOIN dblock_shares r ON r.name = t.name AND r.token = t.token
  LEFT JOIN dblock_sessions s ON s.id = r.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = r.session_id
 WHERE t.nth = 1 OR r.session_id = sqlc.arg(session) OR CAST(sqlc.arg(most) AS SIGNED) > 0
UNION ALL
SELECT w.name, 2, w.ticket, w.session_id, w.host, w.thread, w.attempt, 0, 0, w.units, w.enqueued_at, 0,
       COALESCE(IF(s.dead = 0, h.expires_at, 0), 0), w.capacity, 0, 0, 0, (SELECT c.now_us FROM dblock_clock c), _ascii'', w.metadata, '',
       COALESCE(s.app, ''), COALESCE(s.pid, 0), COALESCE(s.buried_because, '')
  FROM dblock_locks l
 STRAIGHT_JOIN dblock_waiters w FORCE INDEX (PRIMARY) ON w.name = l.name
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id
 WHERE CAST(sqlc.arg(most) AS SIGNED) > 0 AND l.name IN (sqlc.slice(names)) AND l.waiters <= CAST(sqlc.arg(most) AS SIGNED)
UNION ALL
SELECT w.name, 2, w.ticket, w.session_id, w.host, w.thread, w.attempt, 0, 0, w.units, w.enqueued_at, 0,
       COALESCE(IF(s.dead = 0, h.expires_at, 0), 0), w.capacity, l.waiters, 0, 0, (SELECT c.now_us FROM dblock_clock c), _ascii'', w.metadata, '',
       COALESCE(s.app, ''), COALESCE(s.pid, 0), COALESCE(s.buried_because, '')
  FROM dblock_locks l
 STRAIGHT_JOIN dblock_waiters w FORCE INDEX (PRIMARY) ON w.name = l.name
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id
 WHERE w.ticket = (SELECT x.ticket FROM dblock_waiters x FORCE INDEX (PRIMARY) WHERE x.name = l.name ORDER BY x.name, x.ticket LIMIT 1)
   AND l.name IN (sqlc.slice(names)) AND l.waiters > CAST(sqlc.arg(most) AS SIGNED)
UNION ALL
SELECT '', 0, 0, _ascii'', '', '', _ascii'', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, _ascii'', '', '', '', 0, '';

-- The places behind a place, with the columns of ReadAll.
-- name: NextPlaces :many
SELECT w.name, CAST(2 AS SIGNED) AS part, w.ticket AS place, w.session_id, w.host, w.thread, w.attempt, CAST(0 AS SIGNED) AS token,
       CAST(0 AS SIGNED) AS first_token, CAST(w.units AS SIGNED) AS units, w.enqueued_at AS since, CAST(0 AS SIGNED) AS expires_at,
       CAST(COALESCE(IF(s.dead = 0, h.expires_at, 0), 0) AS SIGNED) AS session_expires_at, CAST(w.capacity AS SIGNED) AS capacity,
       CAST(0 AS SIGNED) AS waiters, CAST(0 AS SIGNED) AS rests_until, CAST(0 AS SIGNED) AS sharing,
       CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us, '' AS queued, w.metadata, '' AS asked, COALESCE(s.app, '') AS app,
       CAST(COALESCE(s.pid, 0) AS SIGNED) AS pid, COALESCE(s.buried_because, '') AS buried
  FROM (SELECT x.name, x.ticket, x.session_id, x.host, x.thread, x.attempt, x.units, x.capacity, x.enqueued_at, x.metadata
          FROM dblock_waiters x FORCE INDEX (PRIMARY) WHERE x.name = sqlc.arg(name) AND x.ticket > sqlc.arg(after) ORDER BY x.ticket LIMIT ?) w
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id
 ORDER BY w.ticket;
