-- The acquire of units of a name that has room for them: of its row the units and a token. AddShare
-- is the other half.
-- name: TakeUnits :one
INSERT INTO dblock_locks (name, token, acquired_at, shared_units, capacity)
SELECT CAST(@name AS TEXT), c.now_us, c.now_us, CAST(@units AS INTEGER), CAST(sqlc.arg(capacity) AS INTEGER)
  FROM dblock_clock c WHERE true
ON CONFLICT (name) DO UPDATE SET
       token = max(dblock_locks.token + 1, excluded.acquired_at), acquired_at = excluded.acquired_at,
       shared_units = dblock_locks.shared_units + excluded.shared_units,
       capacity = CASE WHEN dblock_locks.shared_units = 0 THEN excluded.capacity ELSE min(dblock_locks.capacity, excluded.capacity) END,
       mixed = dblock_locks.shared_units > 0 AND (dblock_locks.mixed OR dblock_locks.capacity <> excluded.capacity)
 WHERE dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0 AND dblock_locks.rests_until <= excluded.acquired_at
   AND (dblock_locks.shared_units = 0 OR (dblock_locks.capacity = 2147483647) = (excluded.capacity = 2147483647)
        AND dblock_locks.shared_units + excluded.shared_units <= min(dblock_locks.capacity, excluded.capacity))
RETURNING token, acquired_at;

-- After FirstWaiter and DropWaiters, of a name that has room for the units; now is the clock since
-- it was locked.
-- name: GiveUnits :one
UPDATE dblock_locks SET
       token = max(token + 1, CAST(@now AS INTEGER)), acquired_at = CAST(@now AS INTEGER),
       shared_units = shared_units + CAST(@units AS INTEGER), waiters = waiters - CAST(sqlc.arg(gone) AS INTEGER),
       capacity = CASE WHEN shared_units = 0 THEN CAST(sqlc.arg(capacity) AS INTEGER) ELSE min(capacity, CAST(sqlc.arg(capacity) AS INTEGER)) END,
       mixed = shared_units > 0 AND (mixed OR capacity <> CAST(sqlc.arg(capacity) AS INTEGER))
 WHERE name = @name
RETURNING token, waiters;

-- name: AddShare :exec
INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, capacity, acquired_at, expires_at, metadata)
SELECT CAST(@name AS TEXT), CAST(@token AS INTEGER), CAST(@session AS TEXT), CAST(@host AS TEXT), CAST(@thread AS TEXT),
       CAST(@attempt AS TEXT), CAST(@units AS INTEGER), CAST(sqlc.arg(capacity) AS INTEGER), c.now_us,
       CASE WHEN CAST(@lease AS INTEGER) > 0 THEN c.now_us + CAST(@lease AS INTEGER) END, CAST(@metadata AS TEXT)
  FROM dblock_clock c;

-- Takes a share from the holder that is meant, as FreeLock does the whole name. ReturnUnits is the
-- other half.
-- name: DropShare :one
DELETE FROM dblock_shares
 WHERE name = @name AND session_id = CAST(@session AS TEXT) AND (token = @token OR attempt = @attempt)
RETURNING units;

-- The share of a name that nobody waits for.
-- name: DropIdleShare :one
DELETE FROM dblock_shares
 WHERE dblock_shares.name = @name AND dblock_shares.token = @token AND dblock_shares.session_id = CAST(@session AS TEXT)
   AND EXISTS (SELECT 1 FROM dblock_locks l WHERE l.name = dblock_shares.name AND l.waiters = 0)
RETURNING units;

-- Where the holders state several numbers of units, the smallest of those that are left is looked up.
-- name: ReturnUnits :one
UPDATE dblock_locks SET
       shared_units = shared_units - CAST(@units AS INTEGER),
       capacity = COALESCE((SELECT min(o.capacity) FROM dblock_shares o WHERE dblock_locks.mixed AND o.name = dblock_locks.name), capacity),
       mixed = COALESCE((SELECT min(o.capacity) < max(o.capacity) FROM dblock_shares o WHERE dblock_locks.mixed AND o.name = dblock_locks.name), false),
       acquired_at = CASE WHEN shared_units = CAST(@units AS INTEGER) THEN (SELECT c.now_us FROM dblock_clock c) ELSE acquired_at END
 WHERE dblock_locks.name = @name
RETURNING session_id, shared_units, capacity, waiters, rests_until, first_token, last_token;

-- name: SetShareHolds :execrows
UPDATE dblock_shares SET holds = @holds WHERE name = @name AND session_id = CAST(@session AS TEXT) AND token = @token;

-- ExtendLock for a share.
-- name: ExtendShare :one
UPDATE dblock_shares SET expires_at = max(expires_at, (SELECT c.now_us FROM dblock_clock c) + CAST(@lease AS INTEGER))
 WHERE name = @name AND session_id = CAST(@session AS TEXT) AND token = @token AND expires_at > (SELECT c.now_us FROM dblock_clock c)
RETURNING CAST(expires_at - (SELECT c.now_us FROM dblock_clock c) AS INTEGER) AS remaining;

-- Copies the whole name, held so, into a share of one unit. ToUnits is the other half.
-- name: ToShare :execrows
INSERT INTO dblock_shares (name, token, session_id, host, thread, holds, attempt, units, capacity, acquired_at, expires_at, metadata, asked)
SELECT l.name, l.last_token, l.session_id, l.host, l.thread, l.holds, l.attempt, 1, CAST(@readers AS INTEGER), l.acquired_at, l.expires_at, l.metadata, l.asked
  FROM dblock_locks l
 WHERE l.name = @name AND l.session_id = CAST(@session AS TEXT) AND l.last_token = CAST(@token AS INTEGER);

-- name: ToUnits :one
UPDATE dblock_locks SET
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '', expires_at = NULL, metadata = '', asked = '',
       shared_units = 1, capacity = CAST(sqlc.arg(capacity) AS INTEGER)
 WHERE name = @name AND (waiters = 0 OR capacity IN (0, CAST(sqlc.arg(capacity) AS INTEGER)))
RETURNING session_id, shared_units, capacity, waiters, rests_until, first_token, last_token;

-- name: FindShareOfAttempt :one
SELECT p.* FROM dblock_shares p WHERE p.attempt = @attempt AND p.name = @name AND p.session_id = CAST(@session AS TEXT);

-- After FindShareOfAttempt: makes the only share of a name the whole of it. DropShare is the other
-- half. (sqlc cannot parse UPDATE FROM.)
-- name: ToLock :execrows
UPDATE dblock_locks SET
       session_id = CAST(@session AS TEXT), host = @host, thread = @thread, holds = @holds, attempt = @attempt,
       expires_at = @expires_at, metadata = @metadata, shared_units = 0, asked = '',
       token = max(token + 1, (SELECT c.now_us FROM dblock_clock c)),
       first_token = max(token + 1, (SELECT c.now_us FROM dblock_clock c)),
       last_token = max(token + 1, (SELECT c.now_us FROM dblock_clock c)),
       acquired_at = (SELECT c.now_us FROM dblock_clock c)
 WHERE name = @name AND session_id IS NULL AND shared_units = CAST(@units AS INTEGER);

-- What an attempt has of a name as a whole, and how much is left of its fixed lease.
-- name: Possessed :one
SELECT l.last_token, l.waiters, l.expires_at, c.now_us FROM dblock_locks l CROSS JOIN dblock_clock c
 WHERE l.name = @name AND l.session_id = CAST(@session AS TEXT) AND l.attempt = @attempt;
