-- The guards of holds, which are known by their attempts.

-- Makes the row that Guard share-locks. After LockRowWithin: a takeover either sees the row, or has
-- come before, and then the hold is not found here. The name's row is written, and not only locked:
-- an UnlockTx whose snapshot is older than the guard, and does not show it, fails there.
-- name: MakeGuard :execrows
WITH made AS (
    INSERT INTO dblock_guards (attempt, name, session_id)
    SELECT h.attempt, h.name, h.session_id FROM dblock_holders h
     WHERE h.name = sqlc.arg(name)::text AND h.session_id = sqlc.arg(session)::text AND h.token = sqlc.arg(token)::bigint
    ON CONFLICT (attempt) DO NOTHING RETURNING dblock_guards.name)
UPDATE dblock_locks l SET next_ticket = l.next_ticket FROM made WHERE l.name = made.name;

-- After MakeGuard: the row is there, and so is the hold.
-- name: FindGuard :one
SELECT g.attempt FROM dblock_guards g
 WHERE g.attempt = (SELECT h.attempt FROM dblock_holders h
                     WHERE h.name = sqlc.arg(name)::text AND h.session_id = sqlc.arg(session)::text AND h.token = sqlc.arg(token)::bigint);

-- The first half of Guard, in the caller's transaction. What is refused is not locked: it would be
-- for as long as that lasts. A takeover of the hold writes this row: at REPEATABLE READ and above
-- a snapshot from before a takeover fails here.
-- name: ShareGuard :one
SELECT g.attempt FROM dblock_guards g
 WHERE g.attempt = (SELECT h.attempt FROM dblock_holders h
                     WHERE h.name = sqlc.arg(name)::text AND h.session_id = sqlc.arg(session)::text AND h.token = sqlc.arg(token)::bigint
                       AND (h.expires_at IS NULL OR h.expires_at > dblock_now())
                       AND EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = h.session_id AND NOT s.dead)
                       AND NOT EXISTS (SELECT 1 FROM dblock_wanted w WHERE w.attempt = h.attempt AND w.wanted_until > dblock_now()))
   FOR SHARE;

-- The second, in a later statement: a new snapshot at READ COMMITTED. It locks nothing, so that no
-- request that queues up waits for the caller's transaction. unseen: the grant may be newer than
-- the snapshot, which shows none of its tokens, or shows it in a cohort that it was detached from since,
-- or under the session that it has moved from.
-- name: IsHeld :one
SELECT coalesce(held.lives, false)::boolean AS held, coalesce(held.wanted, false)::boolean AS wanted,
       (current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
        AND NOT EXISTS (SELECT 1 FROM dblock_locks l WHERE l.name = @name AND l.token >= sqlc.arg(token)::bigint
                           AND NOT (l.session_id = sqlc.arg(session)::text AND l.first_token <= sqlc.arg(token)::bigint AND l.last_token > sqlc.arg(token)::bigint)
                           AND NOT (l.session_id IS NOT NULL AND l.session_id <> sqlc.arg(session)::text AND l.last_token = sqlc.arg(token)::bigint)))::boolean AS unseen
  FROM (SELECT 1) one LEFT JOIN (
       SELECT (h.expires_at IS NULL OR h.expires_at > dblock_now())
              AND EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = h.session_id AND NOT s.dead) AS lives,
              EXISTS (SELECT 1 FROM dblock_wanted w WHERE w.attempt = h.attempt AND w.wanted_until > dblock_now()) AS wanted
         FROM dblock_holders h
        WHERE h.name = @name AND h.session_id = sqlc.arg(session)::text AND h.token = sqlc.arg(token)::bigint) held ON true;

-- What every takeover has to pass, after LockName. A guarded transaction holds the row in share mode. Nobody parks a
-- connection behind it: come back later.
-- name: LockGuard :one
SELECT attempt FROM dblock_guards WHERE attempt = @attempt FOR UPDATE NOWAIT;

-- After LockGuard, whatever comes of the takeover.
-- name: TouchGuard :execrows
UPDATE dblock_guards SET takeovers = takeovers + 1 WHERE attempt = @attempt;

-- A takeover that was refused by LockGuard announces itself. Again when half of the time is over,
-- and not each time.
-- name: WantHold :execrows
INSERT INTO dblock_wanted (attempt, wanted_until) VALUES (@attempt, dblock_now() + sqlc.arg(announced)::bigint)
ON CONFLICT (attempt) DO UPDATE SET wanted_until = excluded.wanted_until
 WHERE dblock_wanted.wanted_until < excluded.wanted_until - sqlc.arg(announced)::bigint / 2;

-- The guards of holds that are over, except those that a transaction has locked. An attempt never
-- comes back.
-- name: DropGuards :many
DELETE FROM dblock_guards WHERE dblock_guards.attempt IN (
    SELECT g.attempt FROM dblock_guards g
     WHERE NOT EXISTS (SELECT 1 FROM dblock_holders h WHERE h.name = g.name AND h.attempt = g.attempt)
     LIMIT @most FOR UPDATE OF g SKIP LOCKED)
RETURNING dblock_guards.attempt;

-- name: DropWanted :many
DELETE FROM dblock_wanted WHERE dblock_wanted.attempt IN (
    SELECT w.attempt FROM dblock_wanted w WHERE w.wanted_until < dblock_now() LIMIT @most FOR UPDATE SKIP LOCKED)
RETURNING dblock_wanted.attempt;
