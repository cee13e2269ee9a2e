-- The acquire of a free name, in one statement and one commit. It decides by the lock row alone: what an upsert
-- waited for it sees anew, but only in that row. Tokens are computed from the row as it is, never from excluded. The
-- patience counts from before the row is met, since what is inserted is read from it.
-- name: TakeLock :one
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(patience)::text, true))
INSERT INTO dblock_locks AS l
       (name, session_id, host, thread, holds, attempt, token, acquired_at, expires_at, metadata)
SELECT sqlc.arg(name)::text, sqlc.arg(session)::text, sqlc.arg(host)::text, sqlc.arg(thread)::text, 1, sqlc.arg(attempt)::text, dblock_now(), dblock_now(),
       CASE WHEN sqlc.arg(lease)::bigint > 0 THEN dblock_now() + sqlc.arg(lease)::bigint END, sqlc.arg(metadata)::text
  FROM patience
ON CONFLICT (name) DO UPDATE SET
       session_id = excluded.session_id, host = excluded.host, thread = excluded.thread, holds = 1,
       attempt = excluded.attempt, token = greatest(l.token + 1, dblock_now()), acquired_at = dblock_now(),
       expires_at = CASE WHEN sqlc.arg(lease)::bigint > 0 THEN dblock_now() + sqlc.arg(lease)::bigint END, metadata = excluded.metadata
 WHERE l.session_id IS NULL AND l.waiters = 0
RETURNING l.token, dblock_durable() AS durable;

-- Every other change of holder begins with this, and decides in a later statement of the same transaction.
-- name: LockRow :one
SELECT name FROM dblock_locks WHERE name = @name FOR UPDATE;

-- The release when nobody waits. Its commit need not reach the disk: a release that a crash takes back is a lock
-- that no handle claims, and its client gives it back again.
-- name: ReleaseIdle :one
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(patience)::text, true))
UPDATE dblock_locks l SET
       session_id = NULL, host = '', thread = '', holds = 0, attempt = '', acquired_at = dblock_now(),
       expires_at = NULL, metadata = ''
  FROM patience
 WHERE l.name = @name AND l.session_id = sqlc.arg(session)::text AND l.token = @token AND l.waiters = 0
RETURNING l.name, set_config('synchronous_commit', 'off', true)::text AS commits;

-- After LockRow: gives the lock to the first waiter whose session lives (the dead have no heartbeat row), or to
-- nobody. Waiters before it are dead and leave the queue. The holder is named by session and token, or by session and attempt; with reclaim it must
-- also be dead, or over its fixed lease. No row: it is not held so.
-- name: HandOver :one
WITH held AS (
    SELECT l.name FROM dblock_locks l
     WHERE l.name = @name
       AND (l.session_id = sqlc.arg(session)::text AND (l.token = @token OR l.attempt = @attempt)
            AND (NOT sqlc.arg(reclaim)::boolean OR l.expires_at <= dblock_now()
                 OR EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = l.session_id AND s.dead))
            OR sqlc.arg(session)::text = '' AND l.session_id IS NULL AND l.waiters > 0)
), next AS (
    SELECT w.* FROM dblock_waiters w
     WHERE w.name = (SELECT held.name FROM held)
       AND EXISTS (SELECT 1 FROM dblock_heartbeats h WHERE h.session_id = w.session_id
                      AND (h.expires_at > dblock_now() OR current_setting('transaction_isolation') <> 'read committed'))
     ORDER BY w.ticket LIMIT 1
), gone AS (
    DELETE FROM dblock_waiters w
     WHERE w.name = (SELECT held.name FROM held)
       AND w.ticket <= coalesce((SELECT ticket FROM next), 9223372036854775807)
    RETURNING w.ticket
)
UPDATE dblock_locks l SET
       session_id = next.session_id, host = coalesce(next.host, ''), thread = coalesce(next.thread, ''),
       holds = CASE WHEN next.attempt IS NULL THEN 0 ELSE 1 END, attempt = coalesce(next.attempt, ''),
       token = CASE WHEN next.attempt IS NULL THEN l.token ELSE greatest(l.token + 1, dblock_now()) END,
       acquired_at = dblock_now(), expires_at = CASE WHEN next.lease > 0 THEN dblock_now() + next.lease END,
       waiters = CASE WHEN next.attempt IS NULL THEN 0 ELSE l.waiters - (SELECT count(*) FROM gone)::integer END, metadata = coalesce(next.metadata, '')
  FROM held LEFT JOIN next ON true
 WHERE l.name = held.name
RETURNING coalesce(l.session_id, '')::text AS session, l.attempt, l.token, l.waiters,
       coalesce(next.lease, 0)::bigint AS lease, dblock_durable() AS durable,
       coalesce(CASE WHEN l.session_id <> sqlc.arg(self)::text THEN pg_notify('dblock_' || l.session_id,
           concat_ws(' ', l.attempt, CASE WHEN next.lease = 0 THEN l.token END, CASE WHEN next.lease = 0 THEN l.waiters END))::text END, '')::text AS notified;

-- After LockRow and LockHolder: the same owner comes back in another session. The old one is told, and fenced.
-- name: Reenter :one
UPDATE dblock_locks l SET
       session_id = sqlc.arg(session)::text, holds = 1, attempt = @attempt, token = greatest(l.token + 1, dblock_now()),
       acquired_at = dblock_now(), metadata = @metadata,
       expires_at = CASE WHEN sqlc.arg(lease)::bigint > 0 THEN dblock_now() + sqlc.arg(lease)::bigint END
  FROM dblock_locks old
 WHERE l.name = @name AND old.name = l.name
   AND l.session_id IS NOT NULL AND l.host = @host AND l.thread = @thread
RETURNING l.token, l.waiters, dblock_durable() AS durable, pg_notify('dblock_' || old.session_id, old.attempt)::text AS notified;

-- name: SetHolds :one
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', sqlc.arg(patience)::text, true))
UPDATE dblock_locks l SET holds = @holds FROM patience
 WHERE l.name = @name AND l.session_id = sqlc.arg(session)::text AND l.token = @token
RETURNING l.name;

-- One row for each name and each place that the session has in its queue. The names come as a JSON array, which
-- every driver can send, and are made an array, which is looked up in the index whatever the planner believes.
-- name: Look :many
SELECT l.name, coalesce(l.session_id, '')::text AS session, l.host, l.thread, l.attempt, l.token, l.acquired_at, l.waiters,
       l.expires_at, dblock_now() AS now,
       coalesce(CASE WHEN NOT s.dead THEN h.expires_at END, 0)::bigint AS session_expires_at,
       coalesce(w.attempt, '')::text AS queued
  FROM dblock_locks l
  LEFT JOIN dblock_sessions s ON s.id = l.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = l.session_id
  LEFT JOIN dblock_waiters w ON w.name = l.name AND w.session_id = sqlc.arg(session)::text
 WHERE l.name = ANY (ARRAY(SELECT jsonb_array_elements_text(sqlc.arg(names)::text::jsonb)));

-- name: Overdue :many
SELECT name, session_id::text AS session, token FROM dblock_locks
 WHERE expires_at <= dblock_now() AND session_id IS NOT NULL ORDER BY expires_at LIMIT @most;

-- A page of names, upwards from after; of these, the idle rows that nobody is touching go. A token ahead of the clock
-- stays, so that the next one is higher still.
-- name: Purge :one
WITH page AS (
    SELECT p.name FROM dblock_locks p WHERE p.name > @after ORDER BY p.name LIMIT @most
), idle AS (
    SELECT l.name FROM dblock_locks l
     WHERE l.name IN (SELECT page.name FROM page)
       AND l.session_id IS NULL AND l.waiters = 0 AND l.acquired_at < dblock_now() - sqlc.arg(idle)::bigint
       AND l.token < dblock_now()
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM dblock_locks l USING idle
     WHERE l.name = idle.name AND l.session_id IS NULL AND l.waiters = 0
    RETURNING l.name
)
SELECT (SELECT count(*) FROM gone)::integer AS deleted, coalesce(max(page.name), '')::text AS last,
       count(page.name)::integer AS walked
  FROM page;
