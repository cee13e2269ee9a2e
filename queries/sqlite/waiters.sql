-- After TakeTicket.
-- name: AddWaiter :exec
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, min_hold)
SELECT CAST(@name AS TEXT), CAST(@ticket AS INTEGER), CAST(@session AS TEXT), CAST(@host AS TEXT), CAST(@thread AS TEXT),
       CAST(@attempt AS TEXT), CAST(@lease AS INTEGER), CAST(@metadata AS TEXT), c.now_us, CAST(@units AS INTEGER),
       CAST(@min_hold AS INTEGER)
  FROM dblock_clock c;

-- name: DropPlaces :execrows
DELETE FROM dblock_waiters
 WHERE name = @name AND session_id = @session AND attempt IN (SELECT value FROM json_each(CAST(@attempts AS TEXT)));

-- The first waiter whose session lives.
-- name: FirstWaiter :one
SELECT w.ticket, w.session_id, w.host, w.thread, w.attempt, w.lease, w.metadata, w.units, w.min_hold FROM dblock_waiters w
 WHERE w.name = @name AND EXISTS (SELECT 1 FROM dblock_living v WHERE v.id = w.session_id)
 ORDER BY w.ticket LIMIT 1;

-- Up to and with a ticket: of the one that is granted, before which all are dead.
-- name: DropWaiters :execrows
DELETE FROM dblock_waiters WHERE name = @name AND ticket <= @ticket;
