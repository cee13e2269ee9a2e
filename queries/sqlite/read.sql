-- One row for each name and each place that the session has in its queue. That is complete for names without shares
-- whose queue waits for a holder of the whole name. The names come as a JSON array. Without a session ('') no place is
-- read. The plus sign keeps SQLite from reading all places of the session for each name. Package inspection describes the
-- columns, here and in ReadAll.
-- name: Read :many
SELECT l.name, 0 AS part, l.token AS place, COALESCE(l.session_id, '') AS session_id, l.host, l.thread, l.attempt, l.last_token AS token, l.first_token,
       l.shared_units AS units, l.acquired_at AS since, CAST(COALESCE(l.expires_at, 0) AS INTEGER) AS expires_at,
       CAST(CASE WHEN s.dead THEN 0 ELSE COALESCE(h.expires_at, 0) END AS INTEGER) AS session_expires_at,
       l.capacity, l.waiters, l.rests_until, 0 AS sharing, c.now_us, COALESCE(w.attempt, '') AS queued, '' AS metadata, '' AS asked, '' AS app, 0 AS pid,
       '' AS buried
  FROM dblock_locks l
 CROSS JOIN dblock_clock c
  LEFT JOIN dblock_sessions s ON s.id = l.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
  LEFT JOIN dblock_waiters w ON w.name = CASE WHEN CAST(sqlc.arg(session) AS TEXT) <> '' THEN l.name END AND +w.session_id = CAST(sqlc.arg(session) AS TEXT)
 WHERE l.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)));

-- The same for any names, at three times the price, with a row for each share (part 1) and for each of the first places
-- in the queue (2).
-- name: ReadAll :many
WITH seen AS (
    SELECT l.name, 0 AS part, l.token AS place, l.session_id, l.host, l.thread, l.attempt, l.last_token AS token, l.first_token,
           l.shared_units AS units, l.acquired_at AS since, l.expires_at, l.capacity, l.waiters, l.rests_until, COALESCE(w.attempt, '') AS queued,
           l.metadata, l.asked
      FROM dblock_locks l
      LEFT JOIN dblock_waiters w ON w.name = CASE WHEN CAST(sqlc.arg(session) AS TEXT) <> '' THEN l.name END AND +w.session_id = CAST(sqlc.arg(session) AS TEXT)
     WHERE l.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)))
    UNION ALL
    SELECT p.name, 1, p.token, p.session_id, p.host, p.thread, p.attempt, p.token, p.token, p.units, p.acquired_at, p.expires_at, 0, 0, 0, '',
           p.metadata, p.asked
      FROM dblock_shares p
     WHERE p.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)))
    UNION ALL
    SELECT w.name, 2, w.ticket, w.session_id, w.host, w.thread, w.attempt, 0, 0, w.units, w.enqueued_at, NULL, w.capacity, 0, 0, '', w.metadata, ''
      FROM dblock_locks l CROSS JOIN dblock_waiters w
     WHERE l.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT))) AND w.name = l.name AND w.ticket IN (
           SELECT q.ticket FROM dblock_waiters q WHERE q.name = l.name ORDER BY q.ticket LIMIT CAST(sqlc.arg(most) AS INTEGER))
)
SELECT a.name, a.part, a.place, COALESCE(a.session_id, '') AS session_id, a.host, a.thread, a.attempt, a.token, a.first_token, a.units, a.since,
       CAST(COALESCE(a.expires_at, 0) AS INTEGER) AS expires_at, CAST(CASE WHEN s.dead THEN 0 ELSE COALESCE(h.expires_at, 0) END AS INTEGER) AS session_expires_at,
       a.capacity, a.waiters, a.rests_until, 0 AS sharing, c.now_us, a.queued, a.metadata, a.asked, COALESCE(s.app, '') AS app, COALESCE(s.pid, 0) AS pid,
       COALESCE(s.buried_because, '') AS buried
  FROM seen a CROSS JOIN dblock_clock c
  LEFT JOIN dblock_sessions s ON s.id = a.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = a.session_id;
