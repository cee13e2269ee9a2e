-- Names that begin with a prefix: first is the lowest such name, and last the first name above all of them. FORCE
-- INDEX: nothing is sorted, whatever the statistics say. No EXISTS: MariaDB would read the whole queue.
-- name: Names :many
SELECT l.name FROM dblock_locks l FORCE INDEX (PRIMARY)
 WHERE l.name > sqlc.arg(after) AND l.name >= sqlc.arg(first) AND (CAST(sqlc.arg(bounded) AS SIGNED) = 0 OR l.name < sqlc.arg(last))
   AND (CAST(sqlc.arg(idle) AS SIGNED) = 1 OR l.session_id IS NOT NULL OR l.shared_units > 0 OR l.waiters > 0)
 ORDER BY l.name LIMIT ?;

-- The same for names with a holder on a host ('': any) that has held them for at least so long.
-- name: NamesHeld :many
SELECT l.name FROM dblock_locks l FORCE INDEX (PRIMARY)
 WHERE l.name > sqlc.arg(after) AND l.name >= sqlc.arg(first) AND (CAST(sqlc.arg(bounded) AS SIGNED) = 0 OR l.name < sqlc.arg(last))
   AND (l.session_id IS NOT NULL AND (sqlc.arg(host) = '' OR l.host = sqlc.arg(host) AND CHAR_LENGTH(l.host) = CHAR_LENGTH(sqlc.arg(host)))
        AND l.acquired_at <= (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(older) AS SIGNED)
     OR l.shared_units > 0 AND EXISTS (
        SELECT h.name FROM dblock_shares h
         WHERE h.name = l.name AND (sqlc.arg(host) = '' OR h.host = sqlc.arg(host) AND CHAR_LENGTH(h.host) = CHAR_LENGTH(sqlc.arg(host)))
           AND h.acquired_at <= (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(older) AS SIGNED)))
   AND (CAST(sqlc.arg(contended) AS SIGNED) = 0 OR l.waiters > 0 AND (
        SELECT w.ticket FROM dblock_waiters w FORCE INDEX (PRIMARY) WHERE w.name = l.name AND w.attempt NOT LIKE 'candidate%' LIMIT 1) IS NOT NULL)
 ORDER BY l.name LIMIT ?;

-- The same for names with waiters that are no candidates, whichever sessions they belong to. DISTINCT steps from one queue
-- to the next: few of many names have a queue, and a queue may be long. (MariaDB does so if its statistics fit the table,
-- and otherwise reads the queues.) A condition on the attempt there would read them all.
-- name: Contended :many
SELECT q.name FROM (
    SELECT DISTINCT w.name FROM dblock_waiters w FORCE INDEX (PRIMARY)
     WHERE w.name > sqlc.arg(after) AND w.name >= sqlc.arg(first) AND (CAST(sqlc.arg(bounded) AS SIGNED) = 0 OR w.name < sqlc.arg(last))
) q
 WHERE (SELECT w.ticket FROM dblock_waiters w FORCE INDEX (PRIMARY) WHERE w.name = q.name AND w.attempt NOT LIKE 'candidate%' LIMIT 1) IS NOT NULL
 ORDER BY q.name LIMIT ?;

-- A name, and the names that its holders wait for, directly or through others. The lengths are compared for the reason
-- given in WaitGraph.
-- name: Why :many
WITH RECURSIVE awaited (name) AS (
    SELECT l.name FROM dblock_locks l WHERE l.name = sqlc.arg(name)
    UNION
    SELECT w.name FROM awaited a
      STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name
      STRAIGHT_JOIN dblock_waiters w FORCE INDEX (dblock_waiters_owner) ON w.session_id = l.session_id AND w.thread = l.thread AND w.host = l.host
       AND CHAR_LENGTH(w.thread) = CHAR_LENGTH(l.thread) AND CHAR_LENGTH(w.host) = CHAR_LENGTH(l.host)
    UNION
    SELECT w.name FROM awaited a
      STRAIGHT_JOIN dblock_shares r FORCE INDEX (PRIMARY) ON r.name = a.name
      STRAIGHT_JOIN dblock_waiters w FORCE INDEX (dblock_waiters_owner) ON w.session_id = r.session_id AND w.thread = r.thread AND w.host = r.host
       AND CHAR_LENGTH(w.thread) = CHAR_LENGTH(r.thread) AND CHAR_LENGTH(w.host) = CHAR_LENGTH(r.host)
)
SELECT a.name FROM awaited a LIMIT ?;

-- Sessions on a host ('': any), of an application ('': any); with dead also those that have ended. The counts are taken
-- for the page only.
-- name: Sessions :many
SELECT p.id, p.host, p.pid, p.app, p.started_at, p.now_us, p.expires_at,
       CAST((SELECT COUNT(*) FROM dblock_locks l WHERE l.session_id = p.id)
          + (SELECT COUNT(*) FROM dblock_shares r WHERE r.session_id = p.id) AS SIGNED) AS held,
       CAST((SELECT COALESCE(SUM(w.members), 0) FROM dblock_waiters w WHERE w.session_id = p.id) AS SIGNED) AS waiting,
       p.buried_because AS buried
  FROM (SELECT s.id, s.host, s.pid, s.app, s.started_at, CAST(c.now_us AS SIGNED) AS now_us,
               CAST(COALESCE(IF(s.dead = 0, h.expires_at, 0), 0) AS SIGNED) AS expires_at, s.buried_because
          FROM dblock_sessions s FORCE INDEX (PRIMARY)
          LEFT JOIN dblock_heartbeats h ON h.session_id = s.id
         CROSS JOIN dblock_clock c
         WHERE s.id > sqlc.arg(after) AND (CAST(sqlc.arg(dead) AS SIGNED) = 1 OR s.dead = 0 AND h.expires_at > c.now_us)
           AND (sqlc.arg(host) = '' OR s.host = sqlc.arg(host) AND CHAR_LENGTH(s.host) = CHAR_LENGTH(sqlc.arg(host)))
           AND (sqlc.arg(app) = '' OR s.app = sqlc.arg(app) AND CHAR_LENGTH(s.app) = CHAR_LENGTH(sqlc.arg(app)))
         ORDER BY s.id LIMIT ?) p
 ORDER BY p.id;

-- For a living session: the watchers of a dead one would never be deleted. 0: the session is dead, or watches already.
-- name: Watch :execrows
INSERT INTO dblock_watchers (name, watch, session_id)
SELECT sqlc.arg(name), sqlc.arg(watch), s.id FROM dblock_sessions s WHERE s.id = sqlc.arg(session) AND s.dead = 0
ON DUPLICATE KEY UPDATE session_id = sqlc.arg(session);

-- 0: the reaper has deleted it.
-- name: Unwatch :execrows
DELETE FROM dblock_watchers WHERE name = sqlc.arg(name) AND watch = sqlc.arg(watch);

-- name: Watchers :many
SELECT DISTINCT session_id FROM dblock_watchers WHERE name = sqlc.arg(name);

-- The watchers of a session, for Unwatch.
-- name: WatchedBy :many
SELECT name, watch FROM dblock_watchers WHERE session_id = sqlc.arg(session);
