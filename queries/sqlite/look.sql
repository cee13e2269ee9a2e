-- One row for each name and each place that the session has in its queue: all there is to see of names that nobody
-- shares and nobody has to hand on. The names come as a JSON array. Of no session ('') no place is read.
-- name: Look :many
SELECT l.name, l.session_id, l.host, l.thread, l.attempt, l.first_token, l.last_token, l.acquired_at, l.waiters, l.expires_at,
       l.shared_units, l.capacity, l.rests_until, c.now_us, s.dead, h.expires_at AS session_expires_at, w.attempt AS place
  FROM dblock_locks l
 CROSS JOIN dblock_clock c
  LEFT JOIN dblock_sessions s ON s.id = l.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
  LEFT JOIN dblock_waiters w ON w.name = CASE WHEN CAST(sqlc.arg(session) AS TEXT) <> '' THEN l.name END AND w.session_id = CAST(sqlc.arg(session) AS TEXT)
 WHERE l.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)));

-- What a session sees of any names, at three times the price: a row for each name (kind 0), for each share of it (1), for
-- each place of the session's in its queue (2) and for the first place of all where nobody has the whole name (3).
-- name: LookShared :many
WITH seen AS (
    SELECT l.name, 0 AS kind, l.session_id AS session, l.host, l.thread, l.attempt, 0 AS units, l.last_token AS token, l.first_token,
           l.acquired_at AS since, l.expires_at, l.waiters, l.capacity, l.shared_units, l.rests_until, false AS fits
      FROM dblock_locks l
     WHERE l.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)))
    UNION ALL
    SELECT p.name, 1, p.session_id, p.host, p.thread, p.attempt, p.units, p.token, p.token, p.acquired_at, p.expires_at, 0, 0, 0, 0, false
      FROM dblock_shares p
     WHERE p.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)))
    UNION ALL
    SELECT w.name, 2, w.session_id, w.host, w.thread, w.attempt, w.units, 0, 0, w.enqueued_at, NULL, 0, 0, 0, 0, false
      FROM dblock_waiters w
     WHERE w.session_id = CAST(sqlc.arg(session) AS TEXT) AND w.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)))
    UNION ALL
    SELECT w.name, 3, w.session_id, w.host, w.thread, w.attempt, w.units, 0, 0, w.enqueued_at, NULL, 0, 0, 0, 0,
           l.shared_units = 0 OR w.units > 0 AND l.shared_units + w.units <= min(l.capacity, w.capacity)
      FROM dblock_locks l CROSS JOIN dblock_waiters w
     WHERE l.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT))) AND l.session_id IS NULL AND l.waiters > 0
       AND w.name = l.name AND w.ticket = (SELECT min(x.ticket) FROM dblock_waiters x WHERE x.name = l.name)
)
SELECT a.name, a.kind, COALESCE(a.session, '') AS session, a.host, a.thread, a.attempt, a.units, a.token, a.first_token, a.since,
       a.expires_at, c.now_us, s.dead, h.expires_at AS session_expires_at, a.waiters, a.capacity, a.shared_units, a.rests_until, a.fits
  FROM seen a CROSS JOIN dblock_clock c
  LEFT JOIN dblock_sessions s ON s.id = a.session
  LEFT JOIN dblock_heartbeats h ON h.session_id = a.session;
