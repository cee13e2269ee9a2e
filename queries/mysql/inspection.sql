-- All about names, a row for each name (part 0), for each holder of it or of a share (1), and for
-- each place in its queue (2). place: of the name its highest token, of a holder its own, of a
-- place in the queue its ticket.
-- name: Describe :many
SELECT l.name, CAST(0 AS SIGNED) AS part, l.token AS place, '' AS session_id, '' AS host, '' AS thread, '' AS attempt, l.capacity AS units, CAST(0 AS SIGNED) AS holds,
       l.rests_until AS since, l.expires_at, CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS session_expires_at, l.waiters,
       CAST(l.shared_units AS SIGNED) AS shared_units, '' AS metadata, '' AS asked, '' AS app, CAST(0 AS SIGNED) AS pid
  FROM dblock_locks l
 WHERE l.name IN (sqlc.slice(names))
UNION ALL
SELECT l.name, 1, l.token, l.session_id, l.host, l.thread, l.attempt, 0, l.holds, l.acquired_at, l.expires_at,
       COALESCE(IF(s.dead = 0, h.expires_at, 0), 0), 0, 0, l.metadata, COALESCE(l.asked, ''), COALESCE(s.app, ''), COALESCE(s.pid, 0)
  FROM dblock_locks l
  LEFT JOIN dblock_sessions s ON s.id = l.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
 WHERE l.name IN (sqlc.slice(names)) AND l.session_id IS NOT NULL
UNION ALL
SELECT r.name, 1, r.token, r.session_id, r.host, r.thread, r.attempt, r.units, r.holds, r.acquired_at, r.expires_at,
       COALESCE(IF(s.dead = 0, h.expires_at, 0), 0), 0, 0, r.metadata, COALESCE(r.asked, ''), COALESCE(s.app, ''), COALESCE(s.pid, 0)
  FROM dblock_shares r
  LEFT JOIN dblock_sessions s ON s.id = r.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = r.session_id
 WHERE r.name IN (sqlc.slice(names))
UNION ALL
SELECT w.name, 2, w.ticket, w.session_id, w.host, w.thread, w.attempt, w.units, 0, w.enqueued_at, NULL,
       COALESCE(IF(s.dead = 0, h.expires_at, 0), 0), 0, 0, w.metadata, '', COALESCE(s.app, ''), COALESCE(s.pid, 0)
  FROM dblock_waiters w
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id
 WHERE w.name IN (sqlc.slice(names));

-- Names that begin with a prefix, of which first is the first and last the first that is above all
-- of them.
-- name: Names :many
SELECT l.name FROM dblock_locks l
 WHERE l.name > sqlc.arg(after) AND l.name >= sqlc.arg(first) AND (CAST(sqlc.arg(bounded) AS SIGNED) = 0 OR l.name < sqlc.arg(last))
   AND (CAST(sqlc.arg(idle) AS SIGNED) = 1 OR l.session_id IS NOT NULL OR l.shared_units > 0 OR l.waiters > 0)
 ORDER BY l.name LIMIT ?;

-- The same of names with a holder on a host ('': any) that has held them for at least so long.
-- name: NamesHeld :many
SELECT l.name FROM dblock_locks l
 WHERE l.name > sqlc.arg(after) AND l.name >= sqlc.arg(first) AND (CAST(sqlc.arg(bounded) AS SIGNED) = 0 OR l.name < sqlc.arg(last))
   AND (l.session_id IS NOT NULL AND (sqlc.arg(host) = '' OR l.host = sqlc.arg(host) AND CHAR_LENGTH(l.host) = CHAR_LENGTH(sqlc.arg(host)))
        AND l.acquired_at <= (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(older) AS SIGNED)
     OR l.shared_units > 0 AND EXISTS (
        SELECT h.name FROM dblock_shares h
         WHERE h.name = l.name AND (sqlc.arg(host) = '' OR h.host = sqlc.arg(host) AND CHAR_LENGTH(h.host) = CHAR_LENGTH(sqlc.arg(host)))
           AND h.acquired_at <= (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(older) AS SIGNED)))
 ORDER BY l.name LIMIT ?;

-- For a session that lives: nobody would forget what another watches.
-- name: Watch :exec
INSERT INTO dblock_watchers (name, watch, session_id)
SELECT sqlc.arg(name), sqlc.arg(watch), s.id FROM dblock_sessions s WHERE s.id = sqlc.arg(session) AND s.dead = 0
ON DUPLICATE KEY UPDATE session_id = sqlc.arg(session);

-- name: Unwatch :exec
DELETE FROM dblock_watchers WHERE name = sqlc.arg(name) AND watch = sqlc.arg(watch);

-- name: Watchers :many
SELECT DISTINCT session_id FROM dblock_watchers WHERE name = sqlc.arg(name);

-- What a session watches, for Unwatch.
-- name: WatchedBy :many
SELECT name, watch FROM dblock_watchers WHERE session_id = sqlc.arg(session);
