-- The acquire of a free name. The token comes from the row as it is: excluded only brings the time.
-- name: TakeLock :one
INSERT INTO dblock_locks (name, session_id, host, thread, holds, attempt, token, acquired_at, expires_at, metadata)
SELECT CAST(@name AS TEXT), CAST(@session AS TEXT), CAST(@host AS TEXT), CAST(@thread AS TEXT), 1, CAST(@attempt AS TEXT),
       c.now_us, c.now_us, CASE WHEN CAST(@lease AS INTEGER) > 0 THEN c.now_us + CAST(@lease AS INTEGER) END,
       CAST(@metadata AS TEXT)
  FROM dblock_clock c WHERE true
ON CONFLICT (name) DO UPDATE SET
       session_id = excluded.session_id, host = excluded.host, thread = excluded.thread, holds = 1,
       attempt = excluded.attempt, token = max(dblock_locks.token + 1, excluded.acquired_at),
       acquired_at = excluded.acquired_at, expires_at = excluded.expires_at, metadata = excluded.metadata
 WHERE dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0
RETURNING token;

-- The same for a name that must have a row.
-- name: TakeLocked :one
UPDATE dblock_locks SET
       session_id = CAST(@session AS TEXT), host = @host, thread = @thread, holds = 1, attempt = @attempt,
       token = max(token + 1, (SELECT c.now_us FROM dblock_clock c)), acquired_at = (SELECT c.now_us FROM dblock_clock c),
       expires_at = CASE WHEN CAST(@lease AS INTEGER) > 0
                         THEN (SELECT c.now_us FROM dblock_clock c) + CAST(@lease AS INTEGER) END, metadata = @metadata
 WHERE name = @name AND session_id IS NULL AND waiters = 0
RETURNING token;

-- name: TakeTicket :one
UPDATE dblock_locks SET waiters = waiters + 1, next_ticket = next_ticket + 1 WHERE name = @name
RETURNING next_ticket - 1 AS ticket;

-- name: CountOff :exec
UPDATE dblock_locks SET waiters = waiters - CAST(sqlc.arg(gone) AS INTEGER) WHERE name = @name;

-- name: ReleaseIdle :execrows
UPDATE dblock_locks SET
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '',
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = NULL, metadata = ''
 WHERE name = @name AND session_id = CAST(@session AS TEXT) AND token = @token AND waiters = 0;

-- Whether the lock is held so: by session and token, or by session and attempt; to be reclaimed, its holder must also
-- be dead, or over its fixed lease; without a session, it must be nobody's although others wait.
-- name: IsHeld :one
SELECT l.token FROM dblock_locks l
 WHERE l.name = @name
   AND (l.session_id = CAST(@session AS TEXT) AND (l.token = @token OR l.attempt = @attempt)
        AND (NOT CAST(@reclaim AS BOOLEAN) OR l.expires_at <= (SELECT c.now_us FROM dblock_clock c)
             OR EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = l.session_id AND s.dead))
        OR CAST(@session AS TEXT) = '' AND l.session_id IS NULL AND l.waiters > 0);

-- After IsHeld, FirstWaiter and DropWaiters.
-- name: Grant :one
UPDATE dblock_locks SET
       session_id = CAST(@session AS TEXT), host = @host, thread = @thread, holds = 1, attempt = @attempt,
       token = max(token + 1, (SELECT c.now_us FROM dblock_clock c)), acquired_at = (SELECT c.now_us FROM dblock_clock c),
       expires_at = CASE WHEN CAST(@lease AS INTEGER) > 0
                         THEN (SELECT c.now_us FROM dblock_clock c) + CAST(@lease AS INTEGER) END, metadata = @metadata,
       waiters = waiters - CAST(sqlc.arg(gone) AS INTEGER)
 WHERE name = @name
RETURNING token, waiters;

-- After IsHeld and DropWaiters: nobody is left who could get it.
-- name: SetFree :exec
UPDATE dblock_locks SET
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '',
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = NULL, metadata = '', waiters = 0
 WHERE name = @name;

-- name: HolderOf :one
SELECT CAST(session_id AS TEXT) AS session, attempt FROM dblock_locks
 WHERE name = @name AND session_id IS NOT NULL AND host = @host AND thread = @thread;

-- After HolderOf: the same owner comes back in another session, and the old one is fenced.
-- name: Reenter :one
UPDATE dblock_locks SET
       session_id = CAST(@session AS TEXT), holds = 1, attempt = @attempt,
       token = max(token + 1, (SELECT c.now_us FROM dblock_clock c)), acquired_at = (SELECT c.now_us FROM dblock_clock c),
       expires_at = CASE WHEN CAST(@lease AS INTEGER) > 0
                         THEN (SELECT c.now_us FROM dblock_clock c) + CAST(@lease AS INTEGER) END, metadata = @metadata
 WHERE name = @name
RETURNING token, waiters;

-- name: SetHolds :execrows
UPDATE dblock_locks SET holds = @holds WHERE name = @name AND session_id = CAST(@session AS TEXT) AND token = @token;

-- One row for each name and each place that the session has in its queue. The names come as a JSON array.
-- name: Look :many
SELECT l.name, l.session_id, l.host, l.thread, l.attempt, l.token, l.acquired_at, l.waiters, l.expires_at,
       c.now_us, s.dead, h.expires_at AS session_expires_at, w.attempt AS queued
  FROM dblock_locks l
 CROSS JOIN dblock_clock c
  LEFT JOIN dblock_sessions s ON s.id = l.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
  LEFT JOIN dblock_waiters w ON w.name = l.name AND w.session_id = CAST(sqlc.arg(session) AS TEXT)
 WHERE l.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)));

-- name: Overdue :many
SELECT l.name, l.session_id, l.token FROM dblock_locks l
 WHERE l.expires_at <= (SELECT c.now_us FROM dblock_clock c) AND l.session_id IS NOT NULL
 ORDER BY l.expires_at LIMIT @most;

-- A page of names, upwards from after.
-- name: PurgePage :many
SELECT p.name, CAST(p.session_id IS NULL AND p.waiters = 0
            AND p.acquired_at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(idle) AS INTEGER) AS BOOLEAN) AS idle
  FROM dblock_locks p WHERE p.name > @after ORDER BY p.name LIMIT @most;

-- Deletes the idle rows of a page. A token ahead of the clock, which was set back, stays: a new row could not rise
-- above it.
-- name: PurgeIdle :execrows
DELETE FROM dblock_locks
 WHERE name > @after AND name <= @final AND session_id IS NULL AND waiters = 0
   AND acquired_at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(idle) AS INTEGER)
   AND token < (SELECT c.now_us FROM dblock_clock c);
