-- A statement that must not wait changes a row by its address (ctid), which a subselect has locked with SKIP LOCKED. The row is
-- found at that address only if it is as in the statement's snapshot; so what the statement reads besides is as under the lock.
-- A statement that waits locks the row at once where it can, and in dblock_wait otherwise, behind the transactions that have it
-- locked. turn.mine: the row is locked; null: the time is over (busy), an answer and no error, which the server would log. The change
-- behind it finds the row locked by its own transaction: it decides by the newest version of the row.

-- Takes a free name, in one statement and one commit. It waits for nobody. more: the members of a cohort behind the first. again: there
-- was no row. There is one now, and the request is repeated. busy: the name was free, but its row was locked, or has changed.
-- name: TakeLock :one
WITH named AS MATERIALIZED (
    SELECT sqlc.arg(more)::bigint AS more, (SELECT e FROM dblock_epoch(sqlc.arg(name)::text) e) AS epoch
), taken AS (
    UPDATE dblock_locks l SET
           session_id = sqlc.arg(session)::text, host = sqlc.arg(host)::text, thread = sqlc.arg(thread)::text,
           attempt = sqlc.arg(attempt)::text, acquired_at = dblock_now(), metadata = sqlc.arg(metadata)::text,
           (first_token, last_token, token) = (SELECT t.first, t.first + named.more, t.first + named.more
                                                 FROM (SELECT greatest(l.token + 1, dblock_now()) AS first) t),
           (epoch, grants) = (SELECT l.epoch + (l.grants + 1) / 32, (l.grants + 1) % 32),
           expires_at = CASE WHEN sqlc.arg(lease)::bigint > 0 THEN dblock_now() + sqlc.arg(lease)::bigint END,
           rests_until = CASE WHEN sqlc.arg(min_hold)::bigint > 0 THEN dblock_now() + sqlc.arg(min_hold)::bigint ELSE 0 END, asked = ''
      FROM named
     WHERE l.ctid = (
           SELECT f.ctid FROM dblock_locks f
            WHERE f.name = sqlc.arg(name)::text AND f.epoch >= (SELECT named.epoch FROM named)
              AND f.session_id IS NULL AND f.waiters = 0 AND f.shared_units = 0 AND f.rests_until <= dblock_now()
              FOR UPDATE SKIP LOCKED)
    RETURNING l.token
), made AS MATERIALIZED (
    SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true), dblock_make(sqlc.arg(name)::text) IS NOT NULL AS done
      FROM named WHERE named.epoch IS NULL
)
SELECT coalesce(taken.token, 0)::bigint AS token, coalesce(made.done, false)::boolean AS again,
       (CASE WHEN taken.token IS NOT NULL THEN false
             ELSE coalesce(NOT made.done, EXISTS (
                  SELECT FROM dblock_locks s
                   WHERE s.name = sqlc.arg(name)::text AND s.epoch >= (SELECT named.epoch FROM named)
                     AND s.session_id IS NULL AND s.waiters = 0 AND s.shared_units = 0 AND s.rests_until <= dblock_now())) END)::boolean AS busy,
       (CASE WHEN taken.token IS NULL THEN set_config('synchronous_commit', 'off', true) ELSE dblock_durable()::text END)::text AS commits
  FROM named LEFT JOIN made ON true LEFT JOIN taken ON true;

-- Locks the row of a name for later statements of the same transaction, within its lock_timeout.
-- name: LockRow :one
WITH turn AS MATERIALIZED (
    SELECT CASE WHEN EXISTS (SELECT FROM dblock_locks l
                              WHERE l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e) FOR UPDATE SKIP LOCKED)
                THEN true ELSE dblock_wait(@name) END AS mine
)
SELECT coalesce(turn.mine, false)::boolean AS locked, (turn.mine IS NULL)::boolean AS busy FROM turn;

-- LockRow with a lock timeout.
-- name: LockRowWithin :one
WITH timeout AS MATERIALIZED (
    SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true)
), turn AS MATERIALIZED (
    SELECT CASE WHEN EXISTS (SELECT FROM dblock_locks l
                              WHERE l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e) FOR UPDATE SKIP LOCKED)
                THEN true ELSE dblock_wait(@name) END AS mine
      FROM timeout
)
SELECT coalesce(turn.mine, false)::boolean AS locked, (turn.mine IS NULL)::boolean AS busy FROM turn;

-- Releases a name without waiters. It waits for nobody, and does nothing if the row is locked. The commit need not reach the disk: if a
-- crash undoes the release, no handle claims the lock, and its client releases it again.
-- name: ReleaseIdle :one
UPDATE dblock_locks l SET
       session_id = NULL, host = '', thread = '', attempt = '', acquired_at = dblock_now(), expires_at = NULL, metadata = '', asked = ''
 WHERE l.ctid = (
       SELECT f.ctid FROM dblock_locks f
        WHERE f.name = @name AND f.epoch >= (SELECT e FROM dblock_epoch(@name) e)
          AND f.session_id = sqlc.arg(session)::text AND f.last_token = @token AND f.waiters = 0 FOR UPDATE SKIP LOCKED)
RETURNING l.name, set_config('synchronous_commit', 'off', true)::text AS commits;

-- name: Overdue :many
SELECT h.name, h.session_id::text AS session, h.token, h.units FROM dblock_holders h
 WHERE h.expires_at <= dblock_now() ORDER BY h.expires_at LIMIT @most;

-- A page of names, ascending from after. Deletes those whose idle rows no transaction has locked. Who makes the rows of a name
-- locks its row in dblock_names first, and so does this. A row with a token ahead of the clock stays, so that the next token is
-- higher.
-- name: Purge :one
WITH page AS (
    SELECT p.name FROM dblock_names p WHERE p.name > @after ORDER BY p.name LIMIT @most
), named AS MATERIALIZED (
    SELECT n.name FROM dblock_names n WHERE n.name IN (
        SELECT i.name FROM dblock_locks i
         WHERE i.name IN (SELECT page.name FROM page)
           AND i.session_id IS NULL AND i.waiters = 0 AND i.shared_units = 0 AND i.acquired_at < dblock_now() - sqlc.arg(idle)::bigint
           AND i.rests_until < dblock_now() AND i.token < dblock_now())
       FOR UPDATE SKIP LOCKED
), idle AS MATERIALIZED (
    SELECT l.name FROM dblock_locks l
     WHERE l.name IN (SELECT named.name FROM named)
       AND l.session_id IS NULL AND l.waiters = 0 AND l.shared_units = 0 AND l.acquired_at < dblock_now() - sqlc.arg(idle)::bigint
       AND l.rests_until < dblock_now() AND l.token < dblock_now()
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM dblock_locks l USING idle
     WHERE l.name = idle.name AND l.session_id IS NULL AND l.waiters = 0 AND l.shared_units = 0
    RETURNING l.name
), unnamed AS (
    DELETE FROM dblock_names n USING gone WHERE n.name = gone.name
)
SELECT (SELECT count(*) FROM gone)::integer AS deleted, coalesce(max(page.name), '')::text AS last,
       count(page.name)::integer AS walked
  FROM page;
