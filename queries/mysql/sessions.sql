-- name: OpenSession :exec
INSERT INTO dblock_sessions (id, host, pid, app, started_at)
SELECT sqlc.arg(id), sqlc.arg(host), sqlc.arg(pid), sqlc.arg(app), c.now_us FROM dblock_clock c;

-- A session whose row an operator or a restore removed gets a row again: then its heartbeat tells whether it lives. The
-- unique key decides, not a snapshot. Not INSERT IGNORE, which also ignores other errors. 0: there is a row.
-- name: RestoreSession :execrows
INSERT INTO dblock_sessions (id, host, pid, app, started_at)
SELECT sqlc.arg(id), '', 0, '', c.now_us FROM dblock_clock c
ON DUPLICATE KEY UPDATE id = dblock_sessions.id;

-- Another client may be ending the session. No connection waits behind it: the caller retries later.
-- name: LockSession :one
SELECT dead FROM dblock_sessions WHERE id = sqlc.arg(id) FOR UPDATE NOWAIT;

-- A dead session never revives, so no lock is needed to rely on its death.
-- name: SessionBeats :one
SELECT s.dead, CAST(COALESCE(h.expires_at > (SELECT c.now_us FROM dblock_clock c), 0) AS SIGNED) AS beats
  FROM dblock_sessions s LEFT JOIN dblock_heartbeats h ON h.session_id = s.id WHERE s.id = sqlc.arg(id);

-- After LockSession.
-- name: EndSession :exec
UPDATE dblock_sessions SET dead = LAST_INSERT_ID(1) WHERE id = sqlc.arg(id);

-- After LockSession: ends the session of a process that has ended, whatever its TTL.
-- name: BurySession :exec
UPDATE dblock_sessions SET dead = LAST_INSERT_ID(1), buried_by = sqlc.arg(buried_by), buried_because = sqlc.arg(because) WHERE id = sqlc.arg(id);

-- A late statement may still put a lock under a deleted session: Orphans lists it. No subquery on other tables:
-- a DELETE would lock the rows that it reads there, against the order of locks.
-- name: ForgetSession :execrows
DELETE FROM dblock_sessions WHERE id = sqlc.arg(id) AND dead = 1;

-- Dead sessions to which nothing refers.
-- name: Forgettable :many
SELECT s.id FROM dblock_sessions s
 WHERE s.dead = 1 AND s.started_at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(idle) AS SIGNED)
   AND NOT EXISTS (SELECT l.name FROM dblock_locks l WHERE l.session_id = s.id)
   AND NOT EXISTS (SELECT h.name FROM dblock_shares h WHERE h.session_id = s.id)
   AND NOT EXISTS (SELECT w.name FROM dblock_waiters w WHERE w.session_id = s.id)
 LIMIT ?;

-- name: Expired :many
SELECT h.session_id FROM dblock_heartbeats h
 WHERE h.expires_at <= (SELECT c.now_us FROM dblock_clock c) ORDER BY h.expires_at LIMIT ?;

-- Claims of all sessions that are dead, or have no row. A session has its row before its first claim, and a statement
-- sees both in one snapshot. The last row has no name, as there.
-- name: Orphans :many
SELECT l.session_id AS session, l.name, l.attempt, l.last_token AS token, COALESCE(l.asked, '') AS asked
  FROM (SELECT DISTINCT x.session_id FROM dblock_locks x WHERE x.session_id IS NOT NULL) d
  LEFT JOIN dblock_sessions s ON s.id = d.session_id JOIN dblock_locks l ON l.session_id = d.session_id WHERE COALESCE(s.dead, 1) = 1
UNION ALL
SELECT h.session_id, h.name, h.attempt, h.token, COALESCE(h.asked, '')
  FROM dblock_shares h LEFT JOIN dblock_sessions s ON s.id = h.session_id WHERE COALESCE(s.dead, 1) = 1
UNION ALL
SELECT w.session_id, w.name, w.attempt, 0, ''
  FROM dblock_waiters w LEFT JOIN dblock_sessions s ON s.id = w.session_id WHERE COALESCE(s.dead, 1) = 1
UNION ALL
SELECT _ascii'', '', _ascii'', 0, ''
LIMIT ?;

-- All holds of a session, and its places in queues (token 0), at most so many. One statement: two could both miss a
-- grant in between. The last row has no name, unless there are more rows than the limit.
-- name: Claims :many
SELECT l.session_id AS session, l.name, l.attempt, l.last_token AS token, COALESCE(l.asked, '') AS asked FROM dblock_locks l WHERE l.session_id = sqlc.arg(session)
UNION ALL
SELECT h.session_id, h.name, h.attempt, h.token, COALESCE(h.asked, '') FROM dblock_shares h WHERE h.session_id = sqlc.arg(session)
UNION ALL
SELECT w.session_id, w.name, w.attempt, 0, '' FROM dblock_waiters w WHERE w.session_id = sqlc.arg(session)
UNION ALL
SELECT _ascii'', '', _ascii'', 0, ''
LIMIT ?;

-- The builds that can use these tables.
-- name: Schema :one
SELECT version, usable_from FROM dblock_schema;

-- Where this session looks for a table.
-- name: Place :one
SELECT CAST(COALESCE(DATABASE(), '') AS CHAR) AS db;
