-- name: OpenSession :exec
INSERT INTO dblock_sessions (id, host, pid, app, started_at)
SELECT CAST(@id AS TEXT), CAST(@host AS TEXT), CAST(@pid AS INTEGER), CAST(@app AS TEXT), c.now_us FROM dblock_clock c;

-- A session whose row an operator or a restore removed gets a row again: then its heartbeat tells whether it lives.
-- name: RestoreSession :execrows
INSERT INTO dblock_sessions (id, host, pid, app, started_at)
SELECT CAST(@id AS TEXT), '', 0, '', c.now_us FROM dblock_clock c WHERE true
ON CONFLICT (id) DO NOTHING;

-- Ends the session if its TTL has passed.
-- name: ExpireSession :execrows
UPDATE dblock_sessions SET dead = true
 WHERE id = @id AND NOT dead
   AND NOT EXISTS (SELECT 1 FROM dblock_heartbeats h
                    WHERE h.session_id = dblock_sessions.id AND h.expires_at > (SELECT c.now_us FROM dblock_clock c));

-- Ends the session, whatever its TTL.
-- name: EndSession :execrows
UPDATE dblock_sessions SET dead = true WHERE id = @id;

-- After SessionDead: ends the session of a process that has ended, whatever its TTL.
-- name: BurySession :exec
UPDATE dblock_sessions SET dead = true, buried_by = @by, buried_because = @because WHERE id = @id AND NOT dead;

-- name: SessionDead :one
SELECT dead FROM dblock_sessions WHERE id = @id;

-- name: ForgetSession :execrows
DELETE FROM dblock_sessions WHERE id = @id AND dead;

-- name: ForgetSessions :execrows
DELETE FROM dblock_sessions WHERE id IN (
    SELECT s.id FROM dblock_sessions s
     WHERE s.dead AND s.started_at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(idle) AS INTEGER)
       AND NOT EXISTS (SELECT 1 FROM dblock_locks l WHERE l.session_id = s.id)
       AND NOT EXISTS (SELECT 1 FROM dblock_shares p WHERE p.session_id = s.id)
       AND NOT EXISTS (SELECT 1 FROM dblock_waiters w WHERE w.session_id = s.id)
     LIMIT @most);

-- All holds of a session, and its places in queues (token 0), at most so many; a negative number is all of them.
-- name: Claims :many
SELECT CAST(l.session_id AS TEXT) AS session, l.name, l.attempt, l.last_token AS token, l.asked FROM dblock_locks l WHERE l.session_id = CAST(sqlc.arg(session) AS TEXT)
UNION ALL
SELECT p.session_id, p.name, p.attempt, p.token, p.asked FROM dblock_shares p WHERE p.session_id = CAST(sqlc.arg(session) AS TEXT)
UNION ALL
SELECT w.session_id, w.name, w.attempt, 0 AS token, '' AS asked FROM dblock_waiters w WHERE w.session_id = CAST(sqlc.arg(session) AS TEXT)
LIMIT @most;

-- The builds that can use these tables.
-- name: Schema :one
SELECT version, usable_from FROM dblock_schema;
