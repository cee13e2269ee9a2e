-- lowest is the start of the walk: after, or the prefix if that is higher. below is the first name after all names with
-- the prefix, or '' if it cannot be told. It ends the walk.
-- name: Names :many
SELECT l.name FROM dblock_locks l
 WHERE l.name >= sqlc.arg(lowest)::text AND l.name <> sqlc.arg(after)::text AND (sqlc.arg(prefix)::text = '' OR starts_with(l.name, sqlc.arg(prefix)::text))
   AND (sqlc.arg(below)::text = '' OR l.name < sqlc.arg(below)::text)
   AND (sqlc.arg(idle)::boolean OR l.session_id IS NOT NULL OR l.shared_units > 0 OR l.waiters > 0)
   AND (sqlc.arg(host)::text = '' AND sqlc.arg(older)::bigint = 0 OR EXISTS (
           SELECT 1 FROM dblock_holders h WHERE h.name = l.name AND h.epoch >= l.epoch AND (sqlc.arg(host)::text = '' OR h.host = sqlc.arg(host)::text)
              AND (sqlc.arg(older)::bigint = 0 OR h.acquired_at <= dblock_now() - sqlc.arg(older)::bigint)))
   AND (NOT sqlc.arg(contended)::boolean OR l.waiters > 0 AND (
           SELECT w.ticket FROM dblock_waiters w WHERE w.name = l.name AND w.attempt NOT LIKE 'candidate%' LIMIT 1) IS NOT NULL)
 ORDER BY l.name LIMIT @most;

-- The same for names with waiters that are no candidates, whichever sessions they belong to. It steps from one queue to
-- the next: few of many names have a queue, and a queue may be long.
-- name: Contended :many
WITH RECURSIVE queued AS (
    SELECT (SELECT w.name FROM dblock_waiters w
             WHERE w.name >= sqlc.arg(lowest)::text AND w.name <> sqlc.arg(after)::text AND (sqlc.arg(below)::text = '' OR w.name < sqlc.arg(below)::text)
               AND w.attempt NOT LIKE 'candidate%'
             ORDER BY w.name LIMIT 1) AS name, 1 AS n
    UNION ALL
    SELECT (SELECT w.name FROM dblock_waiters w
             WHERE w.name > q.name AND (sqlc.arg(below)::text = '' OR w.name < sqlc.arg(below)::text)
               AND w.attempt NOT LIKE 'candidate%'
             ORDER BY w.name LIMIT 1), q.n + 1
      FROM queued q WHERE q.name IS NOT NULL AND q.n < sqlc.arg(most)::integer
)
SELECT q.name::text AS name FROM queued q
 WHERE q.name IS NOT NULL AND (sqlc.arg(prefix)::text = '' OR starts_with(q.name, sqlc.arg(prefix)::text)) ORDER BY q.n;

-- A name, and the names that its holders wait for, directly or through others.
-- name: Why :many
WITH RECURSIVE awaited AS (
    SELECT l.name FROM dblock_locks l WHERE l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e)
    UNION
    SELECT w.name FROM awaited a JOIN dblock_holders h ON h.name = a.name AND h.epoch >= (SELECT e FROM dblock_epoch(a.name) e)
      JOIN dblock_waiters w ON w.session_id = h.session_id AND w.thread = h.thread AND w.host = h.host
)
SELECT a.name FROM awaited a LIMIT @most;

-- One time for all rows. The counts are taken for the page only, and together: no index leads from a session to its locks.
-- name: Sessions :many
WITH clock AS MATERIALIZED (SELECT dblock_now() AS now), page AS MATERIALIZED (
    SELECT s.id, s.host, s.pid, s.app, s.started_at, c.now, CASE WHEN s.dead THEN 0 ELSE coalesce(b.expires_at, 0) END AS expires_at,
           s.buried_because
      FROM dblock_sessions s CROSS JOIN clock c LEFT JOIN dblock_heartbeats b ON b.session_id = s.id
     WHERE s.id > sqlc.arg(after)::text AND (sqlc.arg(dead)::boolean OR NOT s.dead AND b.expires_at > c.now)
       AND (sqlc.arg(host)::text = '' OR s.host = sqlc.arg(host)::text) AND (sqlc.arg(app)::text = '' OR s.app = sqlc.arg(app)::text)
     ORDER BY s.id LIMIT @most
)
SELECT p.id, p.host, p.pid, p.app, p.started_at, p.now::bigint AS now, p.expires_at::bigint AS expires_at,
       coalesce(h.held, 0)::bigint AS held, (SELECT coalesce(sum(w.members), 0) FROM dblock_waiters w WHERE w.session_id = p.id)::bigint AS waiting,
       p.buried_because AS buried
  FROM page p LEFT JOIN (SELECT c.session_id, count(*) AS held FROM dblock_holders c
                          WHERE c.session_id IN (SELECT page.id FROM page) GROUP BY c.session_id) h ON h.session_id = p.id
 ORDER BY p.id;

-- For a living session: the watchers of a dead one would never be deleted.
-- name: Watch :execrows
INSERT INTO dblock_watchers (name, watch, session_id)
SELECT sqlc.arg(name)::text, sqlc.arg(watch)::text, s.id FROM dblock_sessions s WHERE s.id = sqlc.arg(session)::text AND NOT s.dead
ON CONFLICT (name, watch) DO NOTHING;

-- name: Unwatch :execrows
DELETE FROM dblock_watchers WHERE name = @name AND watch = @watch;

-- name: NotifyWatchers :many
SELECT pg_notify('dblock_' || v.session_id, v.watch)::text AS notified FROM dblock_watchers v
 WHERE v.name = @name AND pg_notification_queue_usage() < 0.95;
