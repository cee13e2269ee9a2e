-- After TakeTickets.
-- name: AddWaiter :exec
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, capacity, min_hold, passable)
SELECT CAST(@name AS TEXT), CAST(@ticket AS INTEGER), CAST(@session AS TEXT), CAST(@host AS TEXT), CAST(@thread AS TEXT),
       CAST(@attempt AS TEXT), CAST(@lease AS INTEGER), CAST(@metadata AS TEXT), c.now_us, CAST(@units AS INTEGER),
       CAST(sqlc.arg(capacity) AS INTEGER), CAST(@min_hold AS INTEGER), CAST(@passable AS BOOLEAN)
  FROM dblock_clock c;

-- Several, in the order of a JSON array of objects, with tickets that follow each other.
-- name: AddWaiters :exec
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, min_hold, passable)
SELECT CAST(@name AS TEXT), CAST(@ticket AS INTEGER) + j.key, CAST(@session AS TEXT), json_extract(j.value, '$.Host'),
       json_extract(j.value, '$.Thread'), json_extract(j.value, '$.Attempt'), json_extract(j.value, '$.Lease'),
       json_extract(j.value, '$.Metadata'), c.now_us, 0, json_extract(j.value, '$.MinHold'), json_extract(j.value, '$.Passable')
  FROM json_each(CAST(@places AS TEXT)) j CROSS JOIN dblock_clock c;

-- name: DropPlaces :execrows
DELETE FROM dblock_waiters
 WHERE name = @name AND session_id = @session AND attempt IN (SELECT value FROM json_each(CAST(@attempts AS TEXT)));

-- The first waiter whose session lives. leads: the place behind it can be granted with it (Followers).
-- name: FirstWaiter :one
SELECT w.ticket, w.session_id, w.host, w.thread, w.attempt, w.lease, w.metadata, w.units, w.capacity, w.min_hold,
       CAST(w.passable AND w.units = 0 AND COALESCE(
            (SELECT n.session_id = w.session_id AND n.passable AND n.units = 0 FROM dblock_waiters n
              WHERE n.name = w.name AND n.ticket > w.ticket ORDER BY n.ticket LIMIT 1), false) AS BOOLEAN) AS leads
  FROM dblock_waiters w
 WHERE w.name = @name AND EXISTS (SELECT 1 FROM dblock_living v WHERE v.id = w.session_id)
 ORDER BY w.ticket LIMIT 1;

-- Up to and with a ticket: of the one that is granted, before which all are dead.
-- name: DropWaiters :execrows
DELETE FROM dblock_waiters WHERE name = @name AND ticket <= @ticket;
