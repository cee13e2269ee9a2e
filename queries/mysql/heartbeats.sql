-- The only write of a client that holds its locks and does nothing. The insert id shows that there was a row, even if
-- it did not change. 0: the session is dead, or the tables are not for this build. At READ COMMITTED the read of
-- dblock_schema locks nothing: a migration that hangs must not block heartbeats. The end of the lease never moves back:
-- heartbeats that a lock of the table has blocked run in any order, each with the clock of its start.
-- name: Heartbeat :execlastid
UPDATE dblock_heartbeats SET expires_at = LAST_INSERT_ID(GREATEST(expires_at, (SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.arg(ttl) AS SIGNED)))
 WHERE session_id = sqlc.arg(session)
   AND EXISTS (SELECT 1 FROM dblock_schema s WHERE s.version >= sqlc.arg(build) AND s.usable_from <= sqlc.arg(build));

-- name: OpenHeartbeat :exec
INSERT INTO dblock_heartbeats (session_id, expires_at)
SELECT sqlc.arg(session), c.now_us + CAST(sqlc.arg(ttl) AS SIGNED) FROM dblock_clock c;

-- By id alone: a condition on the time could skip a heartbeat in flight. The time is read afterwards.
-- name: LockHeartbeat :one
SELECT expires_at FROM dblock_heartbeats WHERE session_id = sqlc.arg(session) FOR UPDATE;

-- After EndSession: a clock that steps back must not revive the dead. 0: there is none.
-- name: DropHeartbeat :execrows
DELETE FROM dblock_heartbeats WHERE session_id = sqlc.arg(session);

-- name: Clock :one
SELECT CAST(c.now_us AS SIGNED) AS now_us FROM dblock_clock c;
