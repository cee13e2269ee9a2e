-- The only write of a client that holds its locks and does nothing. No row: the session is dead, or the tables are not
-- for this build. The end of the lease never moves back, as on the servers.
-- name: Heartbeat :execrows
UPDATE dblock_heartbeats SET expires_at = max(expires_at, (SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.arg(ttl) AS INTEGER))
 WHERE session_id = @session
   AND EXISTS (SELECT 1 FROM dblock_schema s WHERE s.version >= @build AND s.usable_from <= @build);

-- name: OpenHeartbeat :exec
INSERT INTO dblock_heartbeats (session_id, expires_at)
SELECT CAST(sqlc.arg(session) AS TEXT), c.now_us + CAST(sqlc.arg(ttl) AS INTEGER) FROM dblock_clock c;

-- After ExpireSession or EndSession: a clock that steps back must not revive the dead.
-- name: DropHeartbeat :execrows
DELETE FROM dblock_heartbeats
 WHERE session_id = @session
   AND EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = dblock_heartbeats.session_id AND s.dead);

-- In the transaction that changes something of which the session must hear. No row: the session is dead.
-- name: CountGrant :one
UPDATE dblock_heartbeats SET grants = grants + 1 WHERE session_id = @session
RETURNING grants;

-- The state that a listener polls: its number of grants, and whether more are to be expected. No row: the session is
-- dead.
-- name: Grants :one
SELECT h.grants, CAST(EXISTS (SELECT 1 FROM dblock_waiters w WHERE w.session_id = h.session_id)
                   OR EXISTS (SELECT 1 FROM dblock_watchers o WHERE o.session_id = h.session_id) AS BOOLEAN) AS waiting
  FROM dblock_heartbeats h WHERE h.session_id = @session;

-- name: Holding :one
SELECT CAST(EXISTS (SELECT 1 FROM dblock_locks l WHERE l.session_id = CAST(@session AS TEXT))
         OR EXISTS (SELECT 1 FROM dblock_shares p WHERE p.session_id = CAST(@session AS TEXT)) AS BOOLEAN) AS holding;
