-- All about names, in their order: a row for each (kind 0), then its shares (1) and its queue (2).
-- name: Describe :many
SELECT l.name, 0 AS kind, l.token AS place, COALESCE(l.session_id, '') AS session, l.host, l.thread, l.attempt, 0 AS units,
       l.token, l.acquired_at AS since, l.expires_at, l.holds, l.metadata, l.asked,
       c.now_us, s.dead, h.expires_at AS session_expires_at, COALESCE(s.app, '') AS app, COALESCE(s.pid, 0) AS pid,
       l.waiters, l.capacity, l.shared_units, l.rests_until
  FROM dblock_locks l
 CROSS JOIN dblock_clock c
  LEFT JOIN dblock_sessions s ON s.id = l.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
 WHERE l.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)))
UNION ALL
SELECT p.name, 1 AS kind, p.token AS place, p.session_id AS session, p.host, p.thread, p.attempt, p.units,
       p.token, p.acquired_at AS since, p.expires_at, p.holds, p.metadata, p.asked,
       c.now_us, s.dead, h.expires_at AS session_expires_at, COALESCE(s.app, '') AS app, COALESCE(s.pid, 0) AS pid,
       0 AS waiters, 0 AS capacity, 0 AS shared_units, 0 AS rests_until
  FROM dblock_shares p
 CROSS JOIN dblock_clock c
  LEFT JOIN dblock_sessions s ON s.id = p.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = p.session_id
 WHERE p.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)))
UNION ALL
SELECT w.name, 2 AS kind, w.ticket AS place, w.session_id AS session, w.host, w.thread, w.attempt, w.units,
       0 AS token, w.enqueued_at AS since, NULL AS expires_at, 0 AS holds, w.metadata, '' AS asked,
       c.now_us, s.dead, h.expires_at AS session_expires_at, COALESCE(s.app, '') AS app, COALESCE(s.pid, 0) AS pid,
       0 AS waiters, 0 AS capacity, 0 AS shared_units, 0 AS rests_until
  FROM dblock_waiters w
 CROSS JOIN dblock_clock c
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id
 WHERE w.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)))
 ORDER BY 1, 2, 3;

-- Names from the lowest that can be meant up to the limit, excluded, if there is one. What is asked of a holder must be
-- true of one and the same.
-- name: Names :many
SELECT l.name FROM dblock_locks l CROSS JOIN dblock_clock c
 WHERE l.name >= @lowest AND (CAST(sqlc.arg(above) AS TEXT) = '' OR l.name < CAST(sqlc.arg(above) AS TEXT))
   AND (CAST(sqlc.arg(idle) AS BOOLEAN) OR l.session_id IS NOT NULL OR l.shared_units > 0 OR l.waiters > 0)
   AND (CAST(sqlc.arg(host) AS TEXT) = '' AND CAST(sqlc.arg(older) AS INTEGER) <= 0
        OR l.session_id IS NOT NULL AND (CAST(sqlc.arg(host) AS TEXT) = '' OR l.host = CAST(sqlc.arg(host) AS TEXT))
           AND l.acquired_at <= c.now_us - CAST(sqlc.arg(older) AS INTEGER)
        OR EXISTS (SELECT 1 FROM dblock_shares p
                    WHERE p.name = l.name AND (CAST(sqlc.arg(host) AS TEXT) = '' OR p.host = CAST(sqlc.arg(host) AS TEXT))
                      AND p.acquired_at <= c.now_us - CAST(sqlc.arg(older) AS INTEGER)))
 ORDER BY l.name LIMIT @most;

-- A session that has ended watches nothing.
-- name: Watch :exec
INSERT INTO dblock_watchers (name, watch, session_id)
SELECT CAST(@name AS TEXT), CAST(@watch AS TEXT), s.id FROM dblock_sessions s WHERE s.id = @session AND NOT s.dead
ON CONFLICT (name, watch) DO UPDATE SET session_id = excluded.session_id;

-- name: Unwatch :exec
DELETE FROM dblock_watchers WHERE name = @name AND watch = @watch;

-- name: Watchers :many
SELECT o.session_id, o.watch FROM dblock_watchers o WHERE o.name = @name ORDER BY o.watch;

-- name: DropWatchers :exec
DELETE FROM dblock_watchers WHERE session_id = @session;

-- name: DropDeadWatchers :exec
DELETE FROM dblock_watchers
 WHERE NOT EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = dblock_watchers.session_id AND NOT s.dead);
