-- The general way for a name (driver.Names.Run): its row is locked, then read with the rows that a transition asks for;
-- then the changes are written. Each statement has a snapshot of its own, from after the row was locked.

-- silence: the time without a statement after which the server ends the transaction.
-- name: LockName :one
WITH limits AS MATERIALIZED (
    SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true) AS lock_timeout,
           set_config('idle_in_transaction_session_timeout', sqlc.arg(silence)::text, true) AS silence
), turn AS MATERIALIZED (
    SELECT CASE WHEN EXISTS (SELECT FROM dblock_locks l
                              WHERE l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e) FOR UPDATE SKIP LOCKED)
                THEN true ELSE dblock_wait(@name) END AS mine
      FROM limits
)
SELECT coalesce(turn.mine, false)::boolean AS locked, (turn.mine IS NULL)::boolean AS busy FROM turn;

-- After LockName.
-- name: ReadName :one
SELECT coalesce(l.session_id, '')::text AS session, l.host, l.thread, l.attempt, l.first_token, l.last_token, l.token, l.acquired_at,
       coalesce(l.expires_at, 0)::bigint AS expires_at, l.rests_until, l.metadata, l.asked, l.shared_units, l.capacity, l.mixed,
       l.waiters, l.first_ticket, l.next_ticket, dblock_now() AS now
  FROM dblock_locks l WHERE l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e);

-- For a name without a row.
-- name: Now :one
SELECT dblock_now()::bigint AS now;

-- Dead sessions have no heartbeat. In an application's transaction, a snapshot from before the lock shows old ends of
-- heartbeats: then only a missing heartbeat counts.
-- name: Places :many
SELECT w.ticket, w.session_id, w.host, w.thread, w.attempt, w.members, w.lease, w.metadata, w.min_hold, w.units, w.capacity, w.enqueued_at,
       EXISTS (SELECT 1 FROM dblock_heartbeats h WHERE h.session_id = w.session_id
                  AND (h.expires_at > dblock_now() OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable'))) AS alive
  FROM dblock_waiters w
 WHERE w.name = @name AND w.ticket >= greatest(sqlc.arg(lowest)::bigint, (SELECT l.first_ticket FROM dblock_locks l WHERE l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e)))
 ORDER BY w.ticket LIMIT sqlc.arg(most);

-- name: PlaceOf :one
SELECT w.ticket, w.session_id, w.host, w.thread, w.attempt, w.members, w.lease, w.metadata, w.min_hold, w.units, w.capacity, w.enqueued_at, true AS alive
  FROM dblock_waiters w WHERE w.attempt = @attempt AND w.name = @name AND w.session_id = sqlc.arg(session)::text;

-- session and attempt: '' for all.
-- name: Shares :many
SELECT s.token, s.session_id, s.host, s.thread, s.attempt, s.units, s.capacity, s.acquired_at, coalesce(s.expires_at, 0)::bigint AS expires_at,
       s.metadata, s.asked
  FROM dblock_shares s
 WHERE s.name = @name AND sqlc.arg(session)::text IN ('', s.session_id) AND sqlc.arg(attempt)::text IN ('', s.attempt);

-- name: SharesWith :many
SELECT s.token, s.session_id, s.host, s.thread, s.attempt, s.units, s.capacity, s.acquired_at, coalesce(s.expires_at, 0)::bigint AS expires_at,
       s.metadata, s.asked
  FROM dblock_shares s
 WHERE s.name = @name AND s.token = ANY (ARRAY(SELECT jsonb_array_elements_text(sqlc.arg(tokens)::text::jsonb)::bigint));

-- name: WriteName :exec
UPDATE dblock_locks l SET
       session_id = nullif(sqlc.arg(session)::text, ''), host = @host, thread = @thread, attempt = @attempt, first_token = @first_token,
       last_token = @last_token, token = w.token, acquired_at = @acquired_at, expires_at = nullif(sqlc.arg(expires_at)::bigint, 0),
       rests_until = @rests_until, metadata = @metadata, asked = @asked, shared_units = @shared_units, capacity = @capacity, mixed = @mixed,
       waiters = @waiters, first_ticket = @first_ticket, next_ticket = @next_ticket,
       (epoch, grants) = (SELECT l.epoch + (l.grants + g.new) / 32, (l.grants + g.new) % 32 FROM (SELECT (w.token > l.token)::integer AS new) g)
  FROM (SELECT sqlc.arg(token)::bigint AS token) w
 WHERE l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e);

-- name: PutPlaces :exec
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, members, lease, metadata, min_hold, units, capacity, enqueued_at)
SELECT sqlc.arg(name)::text, (j.r ->> 'Ticket')::bigint, j.r ->> 'Session', j.r ->> 'Host', j.r ->> 'Thread', j.r ->> 'Attempt',
       (j.r ->> 'Members')::integer, (j.r ->> 'Lease')::bigint, j.r ->> 'Metadata', (j.r ->> 'MinHold')::bigint, (j.r ->> 'Units')::integer,
       (j.r ->> 'Of')::integer, (j.r ->> 'Since')::bigint
  FROM (SELECT jsonb_array_elements(sqlc.arg(places)::text::jsonb) AS r) j;

-- Under the lock of the name: a place that has grown.
-- name: SetMembers :exec
UPDATE dblock_waiters SET members = @members WHERE name = @name AND ticket = @ticket;

-- Under the lock of the name no place moves, so that each is looked up by itself, in the index, and deleted by its address.
-- name: DropPlaces :exec
DELETE FROM dblock_waiters w
 WHERE w.ctid = ANY (ARRAY(
       SELECT p.ctid FROM (SELECT jsonb_array_elements_text(sqlc.arg(tickets)::text::jsonb)::bigint AS ticket) t
        CROSS JOIN LATERAL (SELECT q.ctid FROM dblock_waiters q WHERE q.name = @name AND q.ticket = t.ticket OFFSET 0) p));

-- Of an existing share, only the end of its lease and the reason in asked can change.
-- name: PutShares :exec
INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, capacity, acquired_at, expires_at, metadata, asked)
SELECT sqlc.arg(name)::text, (j.r ->> 'Token')::bigint, j.r ->> 'Session', j.r ->> 'Host', j.r ->> 'Thread', j.r ->> 'Attempt',
       (j.r ->> 'Units')::integer, (j.r ->> 'Of')::integer, (j.r ->> 'Since')::bigint, nullif((j.r ->> 'Ends')::bigint, 0),
       j.r ->> 'Metadata', j.r ->> 'Asked'
  FROM (SELECT jsonb_array_elements(sqlc.arg(shares)::text::jsonb) AS r) j
ON CONFLICT (name, token) DO UPDATE SET expires_at = excluded.expires_at, asked = excluded.asked;

-- name: DropShares :exec
DELETE FROM dblock_shares s
 WHERE s.name = @name AND s.token = ANY (ARRAY(SELECT jsonb_array_elements_text(sqlc.arg(tokens)::text::jsonb)::bigint));

-- The last statement before COMMIT. lazily: the commit need not reach the disk. The server keeps notifications until
-- all listeners have read them. If a listener stays in a transaction, the queue fills up, and a COMMIT with a
-- notification fails: hints are left out before that.
-- name: Tell :one
SELECT (CASE WHEN sqlc.arg(lazily)::boolean THEN set_config('synchronous_commit', 'off', true) = 'off' ELSE dblock_durable() END)::boolean AS commits,
       (SELECT count(pg_notify('dblock_' || (j.r ->> 'Session'), j.r ->> 'Payload')::text)
          FROM (SELECT jsonb_array_elements(sqlc.arg(hints)::text::jsonb) AS r) j
         WHERE pg_notification_queue_usage() < 0.95)::bigint AS notified;

-- backend: the process that serves the connection now.
-- name: NotificationsAreFull :one
SELECT pg_notification_queue_usage() >= 0.95 AS is_full, pg_backend_pid() AS backend;

-- The totals of a name's places and shares. It always returns a row.
-- name: Tally :one
SELECT q.waiters, q.lowest, q.highest, s.units, s.smallest, s.largest
  FROM (SELECT coalesce(sum(w.members), 0)::integer AS waiters, coalesce(min(w.ticket), 0)::bigint AS lowest, coalesce(max(w.ticket), 0)::bigint AS highest
          FROM dblock_waiters w WHERE w.name = @name) q
 CROSS JOIN (SELECT coalesce(sum(r.units), 0)::integer AS units, coalesce(min(r.capacity), 0)::integer AS smallest, coalesce(max(r.capacity), 0)::integer AS largest
          FROM dblock_shares r WHERE r.name = @name) s;

-- Names whose rows disagree with their places and shares, among the names that have any, and those from after to upto
-- ('': the last).
-- name: Miscounted :many
SELECT l.name
  FROM (SELECT w.name FROM dblock_waiters w UNION SELECT r.name FROM dblock_shares r
         UNION SELECT n.name FROM dblock_locks n WHERE n.name > sqlc.arg(after)::text AND (sqlc.arg(upto)::text = '' OR n.name <= sqlc.arg(upto)::text)) p
  JOIN dblock_locks l ON l.name = p.name
 WHERE l.waiters <> coalesce((SELECT sum(w.members) FROM dblock_waiters w WHERE w.name = l.name), 0)
    OR l.shared_units <> coalesce((SELECT sum(r.units) FROM dblock_shares r WHERE r.name = l.name), 0)
    OR l.next_ticket <= coalesce((SELECT max(w.ticket) FROM dblock_waiters w WHERE w.name = l.name), 0)
 ORDER BY l.name LIMIT sqlc.arg(most);
