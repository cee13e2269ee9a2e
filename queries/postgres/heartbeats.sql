-- The only write of a client that holds its locks and does nothing. No row: the session is dead, or the tables are not
-- for this build. The end of the lease never moves back: a heartbeat that waits for the row has read the clock before.
-- name: Heartbeat :one
UPDATE dblock_heartbeats SET expires_at = GREATEST(expires_at, dblock_now() + sqlc.arg(ttl)::bigint)
 WHERE session_id = @session
   AND EXISTS (SELECT 1 FROM dblock_schema s WHERE s.version >= @build::integer AND s.usable_from <= @build::integer)
RETURNING session_id, dblock_durable() AS durable;

-- By id alone: with the time in the WHERE it would return no row at once instead of waiting for a heartbeat in
-- flight.
-- name: LockHeartbeat :one
SELECT expires_at FROM dblock_heartbeats WHERE session_id = @session FOR UPDATE;

-- After ExpireSession or EndSession: a clock that steps back must not revive the dead.
-- name: DropHeartbeat :execrows
DELETE FROM dblock_heartbeats h
 WHERE h.session_id = @session AND EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = h.session_id AND s.dead);

-- name: Clock :one
SELECT dblock_now() AS now_us;
