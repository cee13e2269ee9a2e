-- What others gave to the session and of which it has not said that it knows.
-- name: Unseen :many
SELECT l.name, l.attempt, l.first_token, l.last_token AS token, l.waiters, l.expires_at, 0 AS shared FROM dblock_locks l
 WHERE l.session_id = sqlc.arg(session) AND l.unseen = 1
UNION ALL
SELECT h.name, h.attempt, h.token, h.token, l.waiters, h.expires_at, 1 FROM dblock_shares h JOIN dblock_locks l ON l.name = h.name
 WHERE h.session_id = sqlc.arg(session) AND h.unseen = 1;

-- Sleeps unless there is such a grant beside those in the list. Check and sleep are one statement, so that no
-- KILL QUERY falls between them. It is for a moment: whoever locks these tables waits for it. 0: the time is over, and there was none; 2: interrupted; 3: there is one.
-- name: SleepUntilUnseen :one
SELECT CAST(IF(EXISTS(
           SELECT l.name FROM dblock_locks l
            WHERE l.session_id = sqlc.arg(session) AND l.unseen = 1 AND FIND_IN_SET(l.attempt, sqlc.arg(known)) = 0
       ) OR EXISTS(
           SELECT h.name FROM dblock_shares h
            WHERE h.session_id = sqlc.arg(session) AND h.unseen = 1 AND FIND_IN_SET(h.attempt, sqlc.arg(known)) = 0
       ), 3, 2 * SLEEP(CAST(sqlc.arg(micros) AS SIGNED) / 1000000)) AS SIGNED) AS outcome;

-- The same on MariaDB, where it is a wait for a named lock that another connection holds. 1: that is gone.
-- name: SleepAtLock :one
SELECT CAST(IF(EXISTS(
           SELECT l.name FROM dblock_locks l
            WHERE l.session_id = sqlc.arg(session) AND l.unseen = 1 AND FIND_IN_SET(l.attempt, sqlc.arg(known)) = 0
       ) OR EXISTS(
           SELECT h.name FROM dblock_shares h
            WHERE h.session_id = sqlc.arg(session) AND h.unseen = 1 AND FIND_IN_SET(h.attempt, sqlc.arg(known)) = 0
       ), 3, COALESCE(GET_LOCK(sqlc.arg(sleep_lock), CAST(sqlc.arg(micros) AS SIGNED) / 1000000), 2)) AS SIGNED) AS outcome;

-- Rows in use are passed over: nobody's wake-up waits for this, and what is left is said later.
-- name: LockUnseen :many
SELECT name, attempt FROM dblock_locks FORCE INDEX (PRIMARY)
 WHERE name IN (sqlc.slice(names)) AND session_id = sqlc.arg(session) AND unseen = 1
   FOR UPDATE SKIP LOCKED;

-- After LockUnseen. It changes each of them.
-- name: AcknowledgeLocks :execrows
UPDATE dblock_locks FORCE INDEX (PRIMARY) SET unseen = 0 WHERE name IN (sqlc.slice(names));

-- The same of shares, by attempts: of a name there may be many.
-- name: LockUnseenShares :many
SELECT attempt FROM dblock_shares FORCE INDEX (dblock_shares_attempt)
 WHERE attempt IN (sqlc.slice(attempts)) AND unseen = 1
   FOR UPDATE SKIP LOCKED;

-- After LockUnseenShares. It changes each of them.
-- name: AcknowledgeShares :execrows
UPDATE dblock_shares FORCE INDEX (dblock_shares_attempt) SET unseen = 0 WHERE attempt IN (sqlc.slice(attempts));
