-- A run: several waiters of one session that have a name one after the other, by one grant. The row
-- shows the first. The members keep the first places in the queue, with their tokens, until the run
-- ends: so no statement looks further than a run is long (64, driver.MaxRun).

-- What can be granted with the first waiter, and what ends that: the places behind it.
-- name: Followers :many
SELECT w.ticket, w.session_id, w.attempt, w.units, CAST(w.passable AS BOOLEAN) AS passable FROM dblock_waiters w
 WHERE w.name = @name AND w.ticket > @ticket
 ORDER BY w.ticket LIMIT 63;

-- After Followers and GiveLock: each gets the token after that of the one before it.
-- name: MarkMembers :exec
UPDATE dblock_waiters SET token = CAST(sqlc.arg(first_token) AS INTEGER)
       + (SELECT count(*) FROM dblock_waiters x
           WHERE x.name = dblock_waiters.name AND x.ticket > CAST(sqlc.arg(head) AS INTEGER) AND x.ticket <= dblock_waiters.ticket)
 WHERE dblock_waiters.name = @name AND dblock_waiters.ticket > CAST(sqlc.arg(head) AS INTEGER)
   AND dblock_waiters.ticket <= CAST(sqlc.arg(final) AS INTEGER);

-- The run of a session, or its plain lock.
-- name: RunOf :one
SELECT l.host, l.thread, l.attempt, l.first_token, l.last_token, l.acquired_at, c.now_us
  FROM dblock_locks l CROSS JOIN dblock_clock c
 WHERE l.name = @name AND l.session_id = CAST(@session AS TEXT);

-- name: Members :many
SELECT f.token, f.host, f.thread, f.attempt
  FROM (SELECT w.token, w.host, w.thread, w.attempt, w.ticket FROM dblock_waiters w
         WHERE w.name = @name ORDER BY w.ticket LIMIT 64) AS f
 WHERE f.token > 0 ORDER BY f.token;

-- Those that have had the lock, or never will.
-- name: DropMembers :execrows
DELETE FROM dblock_waiters
 WHERE dblock_waiters.name = @name AND dblock_waiters.token > 0 AND dblock_waiters.token <= CAST(sqlc.arg(final) AS INTEGER)
   AND dblock_waiters.ticket IN (SELECT x.ticket FROM dblock_waiters x WHERE x.name = @name ORDER BY x.ticket LIMIT 64);

-- Those that are left wait again.
-- name: ResetMembers :exec
UPDATE dblock_waiters SET token = 0, passable = passable AND NOT CAST(sqlc.arg(singly) AS BOOLEAN)
 WHERE dblock_waiters.name = @name AND dblock_waiters.token > 0
   AND dblock_waiters.ticket IN (SELECT x.ticket FROM dblock_waiters x WHERE x.name = @name ORDER BY x.ticket LIMIT 64);

-- After DropMembers or ResetMembers, of a name that nobody has any more.
-- name: CloseRun :one
UPDATE dblock_locks SET first_token = last_token, waiters = waiters - CAST(sqlc.arg(gone) AS INTEGER) WHERE name = @name
RETURNING session_id, shared_units, capacity, waiters, rests_until, first_token, last_token;

-- After DropMembers: the row shows a member, as the first of what is left of the run. token stays.
-- name: ShowMember :exec
UPDATE dblock_locks SET
       host = @host, thread = @thread, holds = 1, attempt = @attempt, acquired_at = @acquired_at,
       first_token = @first_token, last_token = @last_token, waiters = waiters - CAST(sqlc.arg(gone) AS INTEGER)
 WHERE name = @name;
