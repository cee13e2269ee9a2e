-- The members of a run that has not ended: the places with a token, which are the first of the queue
-- and fewer than 64. They are found and looked up as in HandToRun.

-- After LockRow: a run ends, and its member with this token has the name by itself. The members
-- before it were served, and those behind it wait again. A row: it is so now, or was before.
-- Durable like a grant: a crash must not bring back the run.
-- name: Settle :one
WITH run AS MATERIALIZED (
    SELECT l.name, l.first_token, l.last_token FROM dblock_locks l
     WHERE l.name = @name AND l.session_id = sqlc.arg(session)::text
       AND l.first_token <= sqlc.arg(token)::bigint AND l.last_token >= sqlc.arg(token)::bigint
), members AS MATERIALIZED (
    SELECT w.at, w.token, w.host, w.thread, w.attempt
      FROM (SELECT q.ctid AS at, q.token, q.host, q.thread, q.attempt FROM dblock_waiters q
             WHERE q.name = @name AND q.ticket >= (SELECT b.first_ticket FROM dblock_locks b WHERE b.name = @name)
             ORDER BY q.ticket LIMIT (SELECT 64)) w
     WHERE w.token > 0 AND (SELECT run.first_token < run.last_token FROM run)
), settled AS (
    UPDATE dblock_locks l SET
           attempt = coalesce(m.attempt, l.attempt), host = coalesce(m.host, l.host), thread = coalesce(m.thread, l.thread), holds = 1,
           acquired_at = dblock_now(), first_token = sqlc.arg(token)::bigint, last_token = sqlc.arg(token)::bigint,
           waiters = l.waiters - (SELECT count(*) FROM members s WHERE s.token <= sqlc.arg(token)::bigint)::integer
      FROM run LEFT JOIN members m ON m.token = sqlc.arg(token)::bigint
     WHERE l.name = run.name AND run.first_token < run.last_token AND (m.token IS NOT NULL OR run.first_token = sqlc.arg(token)::bigint)
    RETURNING l.name
), served AS (
    DELETE FROM dblock_waiters q USING settled, members m WHERE m.token <= sqlc.arg(token)::bigint AND q.ctid = m.at
), waiting AS (
    UPDATE dblock_waiters q SET token = 0, passable = q.passable AND NOT sqlc.arg(singly)::boolean
      FROM settled, members m WHERE m.token > sqlc.arg(token)::bigint AND q.ctid = m.at
)
SELECT run.name, dblock_durable() AS durable FROM run WHERE run.first_token = run.last_token OR EXISTS (SELECT 1 FROM settled);

-- After LockRow: the attempt that the row of a run shows is given up, and the row shows the next
-- member. No row: there is none, or it is another's row.
-- name: ShowNextMember :one
WITH next AS (
    DELETE FROM dblock_waiters q USING dblock_locks l
     WHERE l.name = @name AND l.session_id = sqlc.arg(session)::text AND l.attempt = @attempt
       AND q.ctid = (SELECT w.ctid FROM dblock_waiters w
                      WHERE w.name = @name AND w.ticket >= (SELECT b.first_ticket FROM dblock_locks b WHERE b.name = @name) ORDER BY w.ticket LIMIT 1)
       AND q.token > 0
    RETURNING q.name, q.host, q.thread, q.attempt, q.token
)
UPDATE dblock_locks l SET
       attempt = next.attempt, host = next.host, thread = next.thread, holds = 1, first_token = next.token, waiters = l.waiters - 1
  FROM next WHERE l.name = next.name
RETURNING l.name, dblock_durable() AS durable;

-- After LockGuard, before a run is taken from a session that lives: its members wait again.
-- name: RequeueMembers :exec
WITH places AS MATERIALIZED (
    SELECT w.ctid AS at, w.token FROM dblock_waiters w
     WHERE w.name = sqlc.arg(name)::text AND w.ticket >= (SELECT b.first_ticket FROM dblock_locks b WHERE b.name = sqlc.arg(name)::text)
     ORDER BY w.ticket LIMIT (SELECT 64)
)
UPDATE dblock_waiters q SET token = 0 FROM dblock_locks l, places
 WHERE l.name = sqlc.arg(name)::text AND l.first_token < l.last_token
   AND (l.session_id = sqlc.arg(session)::text AND l.last_token = sqlc.arg(token)::bigint
        OR sqlc.arg(session)::text = '' AND l.session_id IS NOT NULL AND l.host = sqlc.arg(host)::text AND l.thread = sqlc.arg(thread)::text)
   AND places.token > 0 AND q.ctid = places.at;
