-- After TakeTicket.
-- name: JoinQueue :exec
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)
SELECT CAST(@name AS TEXT), CAST(@ticket AS INTEGER), CAST(@session AS TEXT), CAST(@host AS TEXT), CAST(@thread AS TEXT),
       CAST(@attempt AS TEXT), CAST(@lease AS INTEGER), CAST(@metadata AS TEXT), c.now_us
  FROM dblock_clock c;

-- name: LeaveQueue :execrows
DELETE FROM dblock_waiters WHERE name = @name AND attempt = @attempt;

-- The first waiter whose session lives.
-- name: FirstWaiter :one
SELECT w.ticket, w.session_id, w.host, w.thread, w.attempt, w.lease, w.metadata FROM dblock_waiters w
 WHERE w.name = @name
   AND EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = w.session_id AND NOT s.dead)
   AND EXISTS (SELECT 1 FROM dblock_heartbeats h
                WHERE h.session_id = w.session_id AND h.expires_at > (SELECT c.now_us FROM dblock_clock c))
 ORDER BY w.ticket LIMIT 1;

-- Up to and with the one that gets the lock: those before it are dead.
-- name: DropWaiters :execrows
DELETE FROM dblock_waiters WHERE name = @name AND ticket <= @ticket;
