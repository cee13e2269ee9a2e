-- The guards of holds.

-- After LockRow, which found the hold: a takeover either sees its guard, or came before.
-- name: FindGuard :one
SELECT takeovers FROM dblock_guards WHERE attempt = sqlc.arg(attempt);

-- After FindGuard, which found none.
-- name: MakeGuard :exec
INSERT INTO dblock_guards (attempt, name, session_id) VALUES (sqlc.arg(attempt), sqlc.arg(name), sqlc.arg(session));

-- The first half of Guard, outside the caller's transaction. Inside, a plain read would be as old as the snapshot, and
-- would lock the row at SERIALIZABLE, and a locking read would keep all others from joining the queue. A guard that is
-- refused here is not locked there. server identifies the server: the second half must run on the same one.
-- name: LookGuard :one
SELECT CAST(CONCAT(@@hostname, ':', @@port, ':', @@server_id) AS CHAR) AS server, l.attempt,
       (l.expires_at IS NULL OR l.expires_at > (SELECT c.now_us FROM dblock_clock c))
       AND EXISTS(SELECT s.id FROM dblock_sessions s WHERE s.id = l.session_id AND s.dead = 0) AS held,
       EXISTS(SELECT g.attempt FROM dblock_guards g WHERE g.attempt = l.attempt) AS made,
       EXISTS(SELECT w.attempt FROM dblock_wanted w
               WHERE w.attempt = l.attempt AND w.wanted_until > (SELECT c.now_us FROM dblock_clock c)) AS wanted
  FROM dblock_locks l
 WHERE l.name = sqlc.arg(name) AND l.session_id = sqlc.arg(session) AND l.last_token = sqlc.arg(token);

-- name: LookShareGuard :one
SELECT CAST(CONCAT(@@hostname, ':', @@port, ':', @@server_id) AS CHAR) AS server, h.attempt,
       (h.expires_at IS NULL OR h.expires_at > (SELECT c.now_us FROM dblock_clock c))
       AND EXISTS(SELECT s.id FROM dblock_sessions s WHERE s.id = h.session_id AND s.dead = 0) AS held,
       EXISTS(SELECT g.attempt FROM dblock_guards g WHERE g.attempt = h.attempt) AS made,
       EXISTS(SELECT w.attempt FROM dblock_wanted w
               WHERE w.attempt = h.attempt AND w.wanted_until > (SELECT c.now_us FROM dblock_clock c)) AS wanted
  FROM dblock_shares h
 WHERE h.name = sqlc.arg(name) AND h.token = sqlc.arg(token) AND h.session_id = sqlc.arg(session);

-- The second half: a locking read, fresh at every isolation level. takeovers > 0: the hold was taken over.
-- name: ShareGuard :one
SELECT takeovers, CAST(CONCAT(@@hostname, ':', @@port, ':', @@server_id) AS CHAR) AS server
  FROM dblock_guards WHERE attempt = sqlc.arg(attempt) LOCK IN SHARE MODE;

-- Every takeover has to pass this statement, after LockRow. A guarded transaction holds the row in share mode. No
-- connection waits behind it: the takeover is retried later.
-- name: LockGuard :one
SELECT takeovers FROM dblock_guards WHERE attempt = sqlc.arg(attempt) FOR UPDATE NOWAIT;

-- LockGuard of an existing guard, for a MariaDB that would roll back the whole transaction for NOWAIT.
-- name: SkipGuard :one
SELECT takeovers FROM dblock_guards WHERE attempt = sqlc.arg(attempt) FOR UPDATE SKIP LOCKED;

-- After LockGuard, if the hold is taken over.
-- name: TouchGuard :exec
UPDATE dblock_guards SET takeovers = GREATEST(takeovers, 0) + 1 WHERE attempt = sqlc.arg(attempt);

-- After ShareGuard of a hold that was not taken over, where a lock alone leaves no trace. The number of takeovers stays
-- below 1.
-- name: CountGuarded :execrows
UPDATE dblock_guards SET takeovers = takeovers - 1 WHERE attempt = sqlc.arg(attempt);

-- A takeover that LockGuard has refused announces itself. 0: it has done so in the same microsecond.
-- name: WantHold :execrows
INSERT INTO dblock_wanted (attempt, wanted_until)
SELECT sqlc.arg(attempt), c.now_us + CAST(sqlc.arg(announced) AS SIGNED) FROM dblock_clock c
ON DUPLICATE KEY UPDATE wanted_until = VALUES(wanted_until);

-- The guards of holds that have ended. An attempt is never reused.
-- name: IdleGuards :many
SELECT g.attempt FROM dblock_guards g
 WHERE NOT EXISTS (SELECT l.name FROM dblock_locks l WHERE l.name = g.name AND l.attempt = g.attempt AND l.session_id IS NOT NULL)
   AND NOT EXISTS (SELECT h.name FROM dblock_shares h WHERE h.attempt = g.attempt)
 LIMIT ?;

-- Of IdleGuards, those that no transaction has locked.
-- name: LockGuards :many
SELECT attempt FROM dblock_guards FORCE INDEX (PRIMARY) WHERE attempt IN (sqlc.slice(attempts)) FOR UPDATE SKIP LOCKED;

-- After LockGuards. One row by its key, as with DropLock.
-- name: DropGuard :exec
DELETE FROM dblock_guards WHERE attempt = sqlc.arg(attempt);

-- name: WantedNoMore :many
SELECT attempt FROM dblock_wanted WHERE wanted_until < (SELECT c.now_us FROM dblock_clock c) LIMIT ?;

-- 0: another reaper has deleted it.
-- name: DropWanted :execrows
DELETE FROM dblock_wanted WHERE attempt = sqlc.arg(attempt);
