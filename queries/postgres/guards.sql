-- The guards of holds, identified by their attempts.

-- Makes the row that Guard share-locks. After LockRowWithin, and as HandToHead nothing if others have the row locked: a later takeover
-- sees the guard, and after an earlier one the hold is not found here. The name's row is written, not only locked, so that an UnlockTx fails whose snapshot is
-- older than the guard and does not show it.
-- name: MakeGuard :execrows
WITH made AS (
    INSERT INTO dblock_guards (attempt, name, session_id)
    SELECT h.attempt, h.name, h.session_id FROM dblock_holders h
     WHERE EXISTS (SELECT FROM dblock_locks l WHERE l.ctid = (
                   SELECT f.ctid FROM dblock_locks f WHERE f.name = @name AND f.epoch >= (SELECT e FROM dblock_epoch(@name) e) FOR UPDATE SKIP LOCKED))
       AND h.name = sqlc.arg(name)::text AND h.epoch >= (SELECT e FROM dblock_epoch(sqlc.arg(name)::text) e) AND h.session_id = sqlc.arg(session)::text AND h.token = sqlc.arg(token)::bigint
    ON CONFLICT (attempt) DO NOTHING RETURNING dblock_guards.name)
UPDATE dblock_locks l SET next_ticket = l.next_ticket FROM made WHERE l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e);

-- After MakeGuard: the row is there, and so is the hold.
-- name: FindGuard :one
SELECT g.attempt FROM dblock_guards g
 WHERE g.attempt = (SELECT h.attempt FROM dblock_holders h
                     WHERE h.name = sqlc.arg(name)::text AND h.epoch >= (SELECT e FROM dblock_epoch(sqlc.arg(name)::text) e) AND h.session_id = sqlc.arg(session)::text AND h.token = sqlc.arg(token)::bigint);

-- The first half of Guard, in the caller's transaction. Conditions stand in the WHERE, so that a refused guard is not
-- locked for the rest of the transaction. A takeover of the hold writes this row: at REPEATABLE READ and above, an
-- older snapshot fails here.
-- name: ShareGuard :one
SELECT g.attempt FROM dblock_guards g
 WHERE g.attempt = (SELECT h.attempt FROM dblock_holders h
                     WHERE h.name = sqlc.arg(name)::text AND h.epoch >= (SELECT e FROM dblock_epoch(sqlc.arg(name)::text) e) AND h.session_id = sqlc.arg(session)::text AND h.token = sqlc.arg(token)::bigint
                       AND (h.expires_at IS NULL OR h.expires_at > dblock_now())
                       AND EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = h.session_id AND NOT s.dead)
                       AND NOT EXISTS (SELECT 1 FROM dblock_wanted w WHERE w.attempt = h.attempt AND w.wanted_until > dblock_now()))
   FOR SHARE;

-- The second half, in a later statement: a new snapshot at READ COMMITTED. It locks nothing, so no request that joins
-- the queue waits for the caller's transaction. unseen: the grant may be newer than the snapshot, which shows none of
-- its tokens, or shows it in a cohort that it was later detached from, or under the session that it has moved from.
-- name: IsHeld :one
SELECT coalesce(held.lives, false)::boolean AS held, coalesce(held.wanted, false)::boolean AS wanted,
       (current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
        AND NOT EXISTS (SELECT 1 FROM dblock_locks l WHERE l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e) AND l.token >= sqlc.arg(token)::bigint
                           AND NOT (l.session_id = sqlc.arg(session)::text AND l.first_token <= sqlc.arg(token)::bigint AND l.last_token > sqlc.arg(token)::bigint)
                           AND NOT (l.session_id IS NOT NULL AND l.session_id <> sqlc.arg(session)::text AND l.last_token = sqlc.arg(token)::bigint)))::boolean AS unseen
  FROM (SELECT 1) one LEFT JOIN (
       SELECT (h.expires_at IS NULL OR h.expires_at > dblock_now())
              AND EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = h.session_id AND NOT s.dead) AS lives,
              EXISTS (SELECT 1 FROM dblock_wanted w WHERE w.attempt = h.attempt AND w.wanted_until > dblock_now()) AS wanted
         FROM dblock_holders h
        WHERE h.name = @name AND h.epoch >= (SELECT e FROM dblock_epoch(@name) e) AND h.session_id = sqlc.arg(session)::text AND h.token = sqlc.arg(token)::bigint) held ON true;

-- Every takeover has to pass this statement, after LockName, and writes the row, whatever the outcome of the takeover. A
-- guarded transaction holds the row in share mode. No connection waits behind it: the takeover is retried later.
-- name: SeizeGuard :one
WITH free AS MATERIALIZED (
    SELECT f.attempt FROM dblock_guards f WHERE f.attempt = @attempt FOR UPDATE SKIP LOCKED
), seized AS (
    UPDATE dblock_guards t SET takeovers = t.takeovers + 1 FROM free WHERE t.attempt = free.attempt RETURNING t.attempt
)
SELECT (EXISTS (SELECT FROM dblock_guards g WHERE g.attempt = @attempt) AND NOT EXISTS (SELECT FROM seized))::boolean AS refused;

-- A takeover that SeizeGuard has refused announces itself, and again once half of the time has passed, not each time.
-- name: WantHold :execrows
INSERT INTO dblock_wanted (attempt, wanted_until) VALUES (@attempt, dblock_now() + sqlc.arg(announced)::bigint)
ON CONFLICT (attempt) DO UPDATE SET wanted_until = excluded.wanted_until
 WHERE dblock_wanted.wanted_until < excluded.wanted_until - sqlc.arg(announced)::bigint / 2;

-- The guards of holds that have ended, except those that a transaction has locked. An attempt is never reused.
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
