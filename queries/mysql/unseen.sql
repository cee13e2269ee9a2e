-- The grants by other sessions that the session has not acknowledged.
-- name: Unseen :many
SELECT l.name, l.attempt, l.first_token, l.last_token AS token, l.waiters, l.expires_at, 0 AS shared FROM dblock_locks l
 WHERE l.session_id = sqlc.arg(session) AND l.unseen = 1
UNION ALL
SELECT h.name, h.attempt, h.token, h.token, l.waiters, h.expires_at, 1 FROM dblock_shares h JOIN dblock_locks l ON l.name = h.name
 WHERE h.session_id = sqlc.arg(session) AND h.unseen = 1;

-- Sleeps unless there is such a grant besides those in the list. Check and sleep are one statement, so that no KILL
-- QUERY falls between them. The sleep is short, since a client that locks these tables waits for it. 0: the time has
-- passed without a grant; 2: interrupted; 3: there is a grant.
-- name: SleepUntilUnseen :one
SELECT CAST(IF(EXISTS(
           SELECT l.name FROM dblock_locks l
            WHERE l.session_id = sqlc.arg(session) AND l.unseen = 1 AND FIND_IN_SET(l.attempt, sqlc.arg(known)) = 0
       ) OR EXISTS(
           SELECT h.name FROM dblock_shares h
            WHERE h.session_id = sqlc.arg(session) AND h.unseen = 1 AND FIND_IN_SET(h.attempt, sqlc.arg(known)) = 0
       ), 3, 2 * SLEEP(CAST(sqlc.arg(micros) AS SIGNED) / 1000000)) AS SIGNED) AS outcome;

-- The same on MariaDB, as a wait for a named lock that another connection holds. 1: that connection is gone.
-- name: SleepAtLock :one
SELECT CAST(IF(EXISTS(
           SELECT l.name FROM dblock_locks l
            WHERE l.session_id = sqlc.arg(session) AND l.unseen = 1 AND FIND_IN_SET(l.attempt, sqlc.arg(known)) = 0
       ) OR EXISTS(
           SELECT h.name FROM dblock_shares h
            WHERE h.session_id = sqlc.arg(session) AND h.unseen = 1 AND FIND_IN_SET(h.attempt, sqlc.arg(known)) = 0
       ), 3, COALESCE(GET_LOCK(sqlc.arg(sleep_lock), CAST(sqlc.arg(micros) AS SIGNED) / 1000000), 2)) AS SIGNED) AS outcome;

-- Locked rows are skipped: no wake-up waits for this statement, and the rest is acknowledged later.
-- name: LockUnseen :many
SELECT name, attempt FROM dblock_locks FORCE INDEX (PRIMARY)
 WHERE name IN (sqlc.slice(names)) AND session_id = sqlc.arg(session) AND unseen = 1
   FOR UPDATE SKIP LOCKED;

-- After LockUnseen. It changes each of them.
-- name: AcknowledgeLocks :execrows
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET unseen = 0 WHERE name IN (sqlc.slice(names));

-- The same for shares, by attempts: a name may have many.
-- name: LockUnseenShares :many
SELECT attempt FROM dblock_shares FORCE INDEX (dblock_shares_attempt)
 WHERE attempt IN (sqlc.slice(attempts)) AND unseen = 1
   FOR UPDATE SKIP LOCKED;

-- After LockUnseenShares. It changes each of them.
-- name: AcknowledgeShares :execrows
UPDATE dblock_shares FORCE INDEX (dblock_shares_attempt) SET unseen = 0 WHERE attempt IN (sqlc.slice(attempts));
