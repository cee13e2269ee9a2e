-- Names from lowest to above, excluded, if there is one: every text is below a blob. One and the same holder must meet
-- all conditions.
-- name: Names :many
SELECT l.name FROM dblock_locks l CROSS JOIN dblock_clock c
 WHERE l.name >= @lowest AND l.name < CASE CAST(sqlc.arg(above) AS TEXT) WHEN '' THEN x'' ELSE CAST(sqlc.arg(above) AS TEXT) END
   AND (CAST(sqlc.arg(idle) AS BOOLEAN) OR l.session_id IS NOT NULL OR l.shared_units > 0 OR l.waiters > 0)
   AND (CAST(sqlc.arg(host) AS TEXT) = '' AND CAST(sqlc.arg(older) AS INTEGER) <= 0
        OR l.session_id IS NOT NULL AND (CAST(sqlc.arg(host) AS TEXT) = '' OR l.host = CAST(sqlc.arg(host) AS TEXT))
           AND l.acquired_at <= c.now_us - CAST(sqlc.arg(older) AS INTEGER)
        OR EXISTS (SELECT 1 FROM dblock_shares p
                    WHERE p.name = l.name AND (CAST(sqlc.arg(host) AS TEXT) = '' OR p.host = CAST(sqlc.arg(host) AS TEXT))
                      AND p.acquired_at <= c.now_us - CAST(sqlc.arg(older) AS INTEGER)))
   AND (NOT CAST(sqlc.arg(contended) AS BOOLEAN) OR l.waiters > 0 AND EXISTS (
        SELECT 1 FROM dblock_waiters w WHERE w.name = l.name AND w.attempt NOT GLOB 'candidate*'))
 ORDER BY l.name LIMIT @most;

-- The same for names with waiters that are no candidates, whichever sessions they belong to. It steps from one queue to
-- the next: few of many names have a queue, and a queue may be long.
-- name: Contended :many
WITH RECURSIVE queued AS (
    SELECT (SELECT w.name FROM dblock_waiters w
             WHERE w.name >= @lowest AND w.name < CASE CAST(sqlc.arg(above) AS TEXT) WHEN '' THEN x'' ELSE CAST(sqlc.arg(above) AS TEXT) END
               AND w.attempt NOT GLOB 'candidate*'
             ORDER BY w.name LIMIT 1) AS name, 1 AS n
    UNION ALL
    SELECT (SELECT w.name FROM dblock_waiters w
             WHERE w.name > q.name AND w.name < CASE CAST(sqlc.arg(above) AS TEXT) WHEN '' THEN x'' ELSE CAST(sqlc.arg(above) AS TEXT) END
               AND w.attempt NOT GLOB 'candidate*'
             ORDER BY w.name LIMIT 1), q.n + 1
      FROM queued q WHERE q.name IS NOT NULL AND q.n < CAST(sqlc.arg(most) AS INTEGER)
)
SELECT CAST(q.name AS TEXT) AS name FROM queued q WHERE q.name IS NOT NULL ORDER BY q.n;

-- A name, and the names that its holders wait for, directly or through others.
-- name: Why :many
WITH RECURSIVE awaited AS (
    SELECT l.name FROM dblock_locks l WHERE l.name = @name
    UNION
    SELECT w.name FROM awaited a JOIN dblock_locks l ON l.name = a.name
      JOIN dblock_waiters w ON w.session_id = l.session_id AND w.thread = l.thread AND w.host = l.host
    UNION
    SELECT w.name FROM awaited a JOIN dblock_shares r ON r.name = a.name
      JOIN dblock_waiters w ON w.session_id = r.session_id AND w.thread = r.thread AND w.host = r.host
)
SELECT a.name FROM awaited a LIMIT @most;

-- Sessions on a host ('': any), of an application ('': any); with dead also those that have ended. The counts are taken
-- for the page only.
-- name: Sessions :many
SELECT p.id, p.host, p.pid, p.app, p.started_at, p.now_us, CAST(p.expires_at AS INTEGER) AS expires_at,
       CAST((SELECT count(*) FROM dblock_locks l WHERE l.session_id = p.id)
          + (SELECT count(*) FROM dblock_shares r WHERE r.session_id = p.id) AS INTEGER) AS held,
       CAST((SELECT coalesce(sum(w.members), 0) FROM dblock_waiters w WHERE w.session_id = p.id) AS INTEGER) AS waiting,
       p.buried_because AS buried
  FROM (SELECT s.id, s.host, s.pid, s.app, s.started_at, c.now_us, CASE WHEN s.dead THEN 0 ELSE COALESCE(h.expires_at, 0) END AS expires_at,
               s.buried_because
          FROM dblock_sessions s
         CROSS JOIN dblock_clock c
          LEFT JOIN dblock_heartbeats h ON h.session_id = s.id
         WHERE s.id > @after AND (CAST(sqlc.arg(dead) AS BOOLEAN) OR NOT s.dead AND h.expires_at > c.now_us)
           AND (CAST(sqlc.arg(host) AS TEXT) = '' OR s.host = CAST(sqlc.arg(host) AS TEXT))
           AND (CAST(sqlc.arg(app) AS TEXT) = '' OR s.app = CAST(sqlc.arg(app) AS TEXT))
         ORDER BY s.id LIMIT @most) AS p
 ORDER BY p.id;

-- A session that has ended watches nothing.
-- name: Watch :execrows
INSERT INTO dblock_watchers (name, watch, session_id)
SELECT CAST(@name AS TEXT), CAST(@watch AS TEXT), s.id FROM dblock_sessions s WHERE s.id = @session AND NOT s.dead
ON CONFLICT (name, watch) DO UPDATE SET session_id = excluded.session_id;

-- name: Unwatch :execrows
DELETE FROM dblock_watchers WHERE name = @name AND watch = @watch;

-- name: Watchers :many
SELECT o.session_id, o.watch FROM dblock_watchers o WHERE o.name = @name ORDER BY o.watch;

-- name: DropWatchers :execrows
DELETE FROM dblock_watchers WHERE session_id = @session;

-- name: DropDeadWatchers :execrows
DELETE FROM dblock_watchers
 WHERE NOT EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = dblock_watchers.session_id AND NOT s.dead);
