-- name: Expired :many
SELECT h.session_id FROM dblock_heartbeats h
 WHERE h.expires_at <= (SELECT c.now_us FROM dblock_clock c) ORDER BY h.expires_at LIMIT @most;

-- Claims of all sessions that are dead, or have no row.
-- name: Orphans :many
SELECT CAST(l.session_id AS TEXT) AS session, l.name, l.attempt, l.last_token AS token, l.asked
  FROM dblock_locks l LEFT JOIN dblock_sessions s ON s.id = l.session_id WHERE l.session_id IS NOT NULL AND coalesce(s.dead, true)
UNION ALL
SELECT p.session_id AS session, p.name, p.attempt, p.token, p.asked
  FROM dblock_shares p LEFT JOIN dblock_sessions s ON s.id = p.session_id WHERE coalesce(s.dead, true)
UNION ALL
SELECT w.session_id AS session, w.name, w.attempt, 0 AS token, '' AS asked
  FROM dblock_waiters w LEFT JOIN dblock_sessions s ON s.id = w.session_id WHERE coalesce(s.dead, true)
LIMIT @most;

-- name: Overdue :many
SELECT l.name, CAST(l.session_id AS TEXT) AS session, l.last_token AS token, 0 AS units, l.expires_at FROM dblock_locks l
 WHERE l.expires_at <= (SELECT c.now_us FROM dblock_clock c) AND l.session_id IS NOT NULL
UNION ALL
SELECT p.name, p.session_id AS session, p.token, p.units, p.expires_at FROM dblock_shares p
 WHERE p.expires_at <= (SELECT c.now_us FROM dblock_clock c)
 ORDER BY 5 LIMIT @most;

-- A page of names, ascending from after.
-- name: PurgePage :many
SELECT p.name, CAST(p.session_id IS NULL AND p.waiters = 0 AND p.shared_units = 0 AND p.rests_until < c.now_us
            AND p.acquired_at < c.now_us - CAST(sqlc.arg(idle) AS INTEGER) AS BOOLEAN) AS idle
  FROM dblock_locks p CROSS JOIN dblock_clock c WHERE p.name > @after ORDER BY p.name LIMIT @most;

-- Deletes the idle rows of a page. A row with a token ahead of the clock, which was set back, stays: the tokens of a
-- new row would not rise above it.
-- name: PurgeIdle :execrows
DELETE FROM dblock_locks
 WHERE name > @after AND name <= @final AND session_id IS NULL AND waiters = 0 AND shared_units = 0
   AND rests_until < (SELECT c.now_us FROM dblock_clock c)
   AND acquired_at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(idle) AS INTEGER)
   AND token < (SELECT c.now_us FROM dblock_clock c);
