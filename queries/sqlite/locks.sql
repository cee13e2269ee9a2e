-- The acquire of a free name. The token comes from the row as it is: excluded only brings the time.
-- What few ask for is a statement of its own (SetRest): a text is parsed anew each time, and that
-- is most of its price.
-- name: TakeLock :one
INSERT INTO dblock_locks (name, session_id, host, thread, holds, attempt, token, first_token, last_token,
                          acquired_at, expires_at, metadata)
SELECT CAST(@name AS TEXT), CAST(@session AS TEXT), CAST(@host AS TEXT), CAST(@thread AS TEXT), 1, CAST(@attempt AS TEXT),
       c.now_us, c.now_us, c.now_us, c.now_us,
       CASE WHEN CAST(@lease AS INTEGER) > 0 THEN c.now_us + CAST(@lease AS INTEGER) END,
       CAST(@metadata AS TEXT)
  FROM dblock_clock c WHERE true
ON CONFLICT (name) DO UPDATE SET
       session_id = excluded.session_id, host = excluded.host, thread = excluded.thread, holds = 1,
       attempt = excluded.attempt, token = max(dblock_locks.token + 1, excluded.acquired_at),
       first_token = max(dblock_locks.token + 1, excluded.acquired_at),
       last_token = max(dblock_locks.token + 1, excluded.acquired_at),
       acquired_at = excluded.acquired_at, expires_at = excluded.expires_at, metadata = excluded.metadata, asked = ''
 WHERE dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0 AND dblock_locks.shared_units = 0
   AND dblock_locks.rests_until <= excluded.acquired_at
RETURNING token, acquired_at;

-- name: SetRest :exec
UPDATE dblock_locks SET rests_until = (SELECT c.now_us FROM dblock_clock c) + CAST(sqlc.arg(rest) AS INTEGER) WHERE name = @name;

-- What others find of a name.
-- name: RoomOf :one
SELECT session_id, shared_units, capacity, waiters, rests_until, first_token, last_token FROM dblock_locks WHERE name = @name;

-- The first of so many tickets that follow each other.
-- name: TakeTickets :one
UPDATE dblock_locks SET
       waiters = waiters + CAST(sqlc.arg(many) AS INTEGER), next_ticket = next_ticket + CAST(sqlc.arg(many) AS INTEGER),
       capacity = CAST(sqlc.arg(capacity) AS INTEGER)
 WHERE name = @name
RETURNING CAST(next_ticket - CAST(sqlc.arg(many) AS INTEGER) AS INTEGER) AS ticket;

-- name: ReleaseIdle :execrows
UPDATE dblock_locks SET
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '',
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = NULL, metadata = '', asked = ''
 WHERE name = @name AND session_id = CAST(@session AS TEXT) AND last_token = @token AND waiters = 0;

-- Takes the lock from the holder that is meant: by session and token, or by session and attempt.
-- name: FreeLock :one
UPDATE dblock_locks SET
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '',
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = NULL, metadata = '', asked = ''
 WHERE name = @name AND session_id = CAST(@session AS TEXT) AND (last_token = @token OR attempt = @attempt)
RETURNING session_id, shared_units, capacity, waiters, rests_until, first_token, last_token;

-- Whether a holder of a name, or of a share, is dead or past a fixed lease.
-- name: IsDue :one
SELECT due.attempt FROM (
    SELECT l.session_id AS id, l.attempt, l.expires_at FROM dblock_locks l
     WHERE l.name = @name AND l.session_id = CAST(@session AS TEXT) AND l.last_token = @token
    UNION ALL
    SELECT p.session_id AS id, p.attempt, p.expires_at FROM dblock_shares p
     WHERE p.name = @name AND p.session_id = CAST(@session AS TEXT) AND p.token = @token
) AS due
 WHERE due.expires_at <= (SELECT c.now_us FROM dblock_clock c)
    OR EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = due.id AND s.dead);

-- Counts off places that were given up.
-- name: CountWaiters :one
UPDATE dblock_locks SET waiters = waiters - CAST(sqlc.arg(gone) AS INTEGER) WHERE name = @name
RETURNING session_id, shared_units, capacity, waiters, rests_until, first_token, last_token;

-- name: Clock :one
SELECT c.now_us FROM dblock_clock c;

-- After FirstWaiter and DropWaiters, of a name that is free; now is the clock since it was locked. With
-- members it is a run, which reserves a token for each of them too.
-- name: GiveLock :one
UPDATE dblock_locks SET
       session_id = CAST(@session AS TEXT), host = @host, thread = @thread, holds = 1, attempt = @attempt,
       token = max(token + 1, CAST(@now AS INTEGER)) + CAST(sqlc.arg(members) AS INTEGER),
       first_token = max(token + 1, CAST(@now AS INTEGER)),
       last_token = max(token + 1, CAST(@now AS INTEGER)) + CAST(sqlc.arg(members) AS INTEGER),
       acquired_at = CAST(@now AS INTEGER), expires_at = @expires_at,
       metadata = @metadata, rests_until = CAST(@rests_until AS INTEGER), asked = '',
       waiters = waiters - CAST(sqlc.arg(gone) AS INTEGER)
 WHERE name = @name
RETURNING first_token, waiters;

-- After DropWaiters: nobody is left.
-- name: EmptyQueue :exec
UPDATE dblock_locks SET waiters = 0 WHERE name = @name;

-- The attempt that holds the name so, as a whole or a share of it.
-- name: AttemptOf :one
SELECT l.attempt FROM dblock_locks l
 WHERE l.name = @name AND l.session_id = CAST(@session AS TEXT) AND l.last_token = @token
UNION ALL
SELECT p.attempt FROM dblock_shares p
 WHERE p.name = @name AND p.session_id = CAST(@session AS TEXT) AND p.token = @token;

-- name: HolderOf :one
SELECT CAST(session_id AS TEXT) AS session, attempt, first_token, last_token FROM dblock_locks
 WHERE name = @name AND session_id IS NOT NULL AND host = @host AND thread = @thread;

-- After HolderOf: the same owner comes back in another session, and the old one is fenced.
-- name: Reenter :one
UPDATE dblock_locks SET
       session_id = CAST(@session AS TEXT), holds = 1, attempt = @attempt,
       token = max(token + 1, (SELECT c.now_us FROM dblock_clock c)),
       first_token = max(token + 1, (SELECT c.now_us FROM dblock_clock c)),
       last_token = max(token + 1, (SELECT c.now_us FROM dblock_clock c)),
       acquired_at = (SELECT c.now_us FROM dblock_clock c),
       expires_at = CASE WHEN CAST(@lease AS INTEGER) > 0
                         THEN (SELECT c.now_us FROM dblock_clock c) + CAST(@lease AS INTEGER) END, metadata = @metadata,
       asked = ''
 WHERE name = @name
RETURNING token, waiters;

-- name: SetHolds :execrows
UPDATE dblock_locks SET holds = @holds WHERE name = @name AND session_id = CAST(@session AS TEXT) AND last_token = @token;

-- Also with the token to which it was raised before, by a call whose answer was lost. Never a run:
-- the tokens of its members would not be its own any more.
-- name: RaiseToken :one
UPDATE dblock_locks SET
       token = max(token, CAST(sqlc.arg(floor) AS INTEGER)),
       first_token = max(last_token, CAST(sqlc.arg(floor) AS INTEGER)), last_token = max(last_token, CAST(sqlc.arg(floor) AS INTEGER))
 WHERE name = @name AND session_id = CAST(@session AS TEXT) AND first_token = last_token
   AND (last_token = @token OR last_token = CAST(sqlc.arg(floor) AS INTEGER))
RETURNING last_token;

-- Never earlier than it was.
-- name: ExtendLock :one
UPDATE dblock_locks SET expires_at = max(expires_at, (SELECT c.now_us FROM dblock_clock c) + CAST(@lease AS INTEGER))
 WHERE name = @name AND session_id = CAST(@session AS TEXT) AND last_token = @token AND expires_at > (SELECT c.now_us FROM dblock_clock c)
RETURNING CAST(expires_at - (SELECT c.now_us FROM dblock_clock c) AS INTEGER) AS remaining;

-- name: Overdue :many
SELECT l.name, CAST(l.session_id AS TEXT) AS session, l.last_token AS token, 0 AS units, l.expires_at FROM dblock_locks l
 WHERE l.expires_at <= (SELECT c.now_us FROM dblock_clock c) AND l.session_id IS NOT NULL
UNION ALL
SELECT p.name, p.session_id AS session, p.token, p.units, p.expires_at FROM dblock_shares p
 WHERE p.expires_at <= (SELECT c.now_us FROM dblock_clock c)
 ORDER BY 5 LIMIT @most;

-- A page of names, upwards from after.
-- name: PurgePage :many
SELECT p.name, CAST(p.session_id IS NULL AND p.waiters = 0 AND p.shared_units = 0 AND p.rests_until < c.now_us
            AND p.acquired_at < c.now_us - CAST(sqlc.arg(idle) AS INTEGER) AS BOOLEAN) AS idle
  FROM dblock_locks p CROSS JOIN dblock_clock c WHERE p.name > @after ORDER BY p.name LIMIT @most;

-- Deletes the idle rows of a page. A token ahead of the clock, which was set back, stays: a new row
-- could not rise above it.
-- name: PurgeIdle :execrows
DELETE FROM dblock_locks
 WHERE name > @after AND name <= @final AND session_id IS NULL AND waiters = 0 AND shared_units = 0
   AND rests_until < (SELECT c.now_us FROM dblock_clock c)
   AND acquired_at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(idle) AS INTEGER)
   AND token < (SELECT c.now_us FROM dblock_clock c);
