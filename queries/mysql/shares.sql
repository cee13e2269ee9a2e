-- After LockRow, which found room: the units, before AddShare writes whose they are. 0 where the name rests, for which only
-- here is a time.
-- name: TakeUnits :execlastid
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET
       token = LAST_INSERT_ID(GREATEST(token + 1, (SELECT c.now_us FROM dblock_clock c))),
       shared_units = shared_units + CAST(sqlc.arg(units) AS SIGNED), capacity = CAST(sqlc.arg(capacity) AS SIGNED),
       mixed = CAST(sqlc.arg(mixed) AS SIGNED), acquired_at = (SELECT c.now_us FROM dblock_clock c)
 WHERE name = sqlc.arg(name) AND session_id IS NULL AND waiters = 0
   AND rests_until <= (SELECT c.now_us FROM dblock_clock c)
   AND shared_units + CAST(sqlc.arg(units) AS SIGNED) <= CAST(sqlc.arg(capacity) AS SIGNED);

-- After TakeUnits.
-- name: AddShare :exec
INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, capacity, acquired_at, expires_at, metadata)
SELECT sqlc.arg(name), sqlc.arg(token), sqlc.arg(session), sqlc.arg(host), sqlc.arg(thread), sqlc.arg(attempt), sqlc.arg(units), sqlc.arg(capacity),
       c.now_us, c.now_us + CAST(sqlc.narg(lease) AS SIGNED), sqlc.arg(metadata)
  FROM dblock_clock c;

-- After LockRow: nobody has the name as a whole any more, and several get units of it: the tokens up to the one returned.
-- name: GiveUnits :execlastid
UPDATE dblock_locks SET
       token = LAST_INSERT_ID(GREATEST(token + 1, (SELECT c.now_us FROM dblock_clock c)) + CAST(sqlc.arg(more) AS SIGNED)),
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '', acquired_at = (SELECT c.now_us FROM dblock_clock c),
       expires_at = NULL, metadata = '', asked = NULL,
       shared_units = CAST(sqlc.arg(used) AS SIGNED), capacity = sqlc.arg(capacity), mixed = sqlc.arg(mixed), waiters = sqlc.arg(waiters), handed = 0
 WHERE name = sqlc.arg(name);

-- After GiveUnits, before DropWaiter: what they waited for is theirs, with rising tokens in the order of their tickets.
-- name: HandShares :exec
INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, capacity, acquired_at, expires_at, metadata, handed)
SELECT w.name, CAST(sqlc.arg(before) AS SIGNED) + ROW_NUMBER() OVER (ORDER BY w.ticket), w.session_id, w.host, w.thread, w.attempt, w.units, w.capacity,
       c.now_us, IF(w.lease > 0, c.now_us + w.lease, NULL), w.metadata, IF(w.session_id = sqlc.arg(self), 0, 1)
  FROM dblock_clock c
  JOIN dblock_waiters w FORCE INDEX (PRIMARY)
 WHERE w.name = sqlc.arg(name) AND w.ticket IN (sqlc.slice(tickets));

-- After LockRow, which has it as the holder's: a share of what the holder has, before the row is written.
-- name: ToShare :exec
INSERT INTO dblock_shares (name, token, session_id, host, thread, holds, attempt, units, capacity, acquired_at, expires_at, metadata, asked)
SELECT l.name, l.last_token, sqlc.arg(session), l.host, l.thread, l.holds, l.attempt, 1, sqlc.arg(readers), l.acquired_at, l.expires_at, l.metadata, l.asked
  FROM dblock_locks l WHERE l.name = sqlc.arg(name);

-- After LockRow and DropShare: the only share becomes the whole. SET as in GiveLock.
-- name: ToLock :execlastid
UPDATE dblock_locks SET
       first_token = GREATEST(token + 1, (SELECT c.now_us FROM dblock_clock c)),
       last_token = GREATEST(token + 1, (SELECT c.now_us FROM dblock_clock c)),
       token = LAST_INSERT_ID(GREATEST(token + 1, (SELECT c.now_us FROM dblock_clock c))),
       session_id = sqlc.arg(session), host = sqlc.arg(host), thread = sqlc.arg(thread), holds = sqlc.arg(holds), attempt = sqlc.arg(attempt),
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = sqlc.narg(expires_at), metadata = sqlc.arg(metadata),
       asked = NULL, shared_units = 0, handed = 0
 WHERE name = sqlc.arg(name);

-- After LockRow and FindShare, as ExtendLock. One row by its whole key.
-- name: ExtendShare :exec
UPDATE dblock_shares SET expires_at = sqlc.arg(expires_at) WHERE name = sqlc.arg(name) AND token = sqlc.arg(token);

-- After LockRow, without which it may be gone by now.
-- name: FindShare :one
SELECT session_id, attempt, token, units, expires_at FROM dblock_shares WHERE name = sqlc.arg(name) AND token = sqlc.arg(token);

-- name: FindShareOfAttempt :one
SELECT session_id, token, host, thread, holds, units, expires_at, metadata FROM dblock_shares
 WHERE attempt = sqlc.arg(attempt) AND name = sqlc.arg(name);

-- After LockRow and FindShare. One row by its whole key.
-- name: DropShare :execrows
DELETE FROM dblock_shares WHERE name = UNHEX(CONVERT(sqlc.arg(name) USING latin1)) AND token = sqlc.arg(token);

-- After LockRow: the smallest number of units that a holder states, and the largest; 0 where there is none. At READ COMMITTED
-- it reads what stands since the row was locked.
-- name: Stated :one
SELECT CAST(COALESCE(MIN(capacity), 0) AS SIGNED) AS smallest, CAST(COALESCE(MAX(capacity), 0) AS SIGNED) AS largest
  FROM dblock_shares WHERE name = sqlc.arg(name);

-- A transaction of the application's that gives the share back holds its row.
-- name: LockShare :one
SELECT session_id FROM dblock_shares FORCE INDEX (PRIMARY) WHERE name = sqlc.arg(name) AND token = sqlc.arg(token) FOR UPDATE NOWAIT;

-- After LockShare, as SetHolds. It does not lock the name's row: it changes nothing that anybody decides by.
-- name: SetShareHolds :execlastid
UPDATE dblock_shares FORCE INDEX (PRIMARY) SET holds = LAST_INSERT_ID(CAST(sqlc.arg(holds) AS SIGNED))
 WHERE name = sqlc.arg(name) AND token = sqlc.arg(token) AND session_id = sqlc.arg(session);
