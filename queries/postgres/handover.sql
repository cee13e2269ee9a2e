-- After LockRowWithin: the common hand-over of a whole name. It does nothing to a row that others have locked after all, since the
-- statements of a batch are sent whatever the first one finds. Its holder releases the name to one living head of the queue
-- that wants the whole name too, if the name does not rest. A head with a fixed lease or a MinHold of its own is left
-- to the general way, which notifies the waiter behind it. No row: nothing was done. All conditions stand with the
-- DELETE, so that no ticket is dropped without a grant: under the row's lock only a heartbeat can change their inputs.
-- The first place is found by its address (ctid), after the dropped ones: the index keeps those until VACUUM runs.
-- name: HandToHead :one
WITH e AS MATERIALIZED (
    SELECT n AS epoch FROM dblock_epoch(@name) n
), head AS (
    DELETE FROM dblock_waiters q USING dblock_locks l, dblock_heartbeats h
     WHERE l.ctid = (SELECT f.ctid FROM dblock_locks f WHERE f.name = @name AND f.epoch >= (SELECT e.epoch FROM e) FOR UPDATE SKIP LOCKED)
       AND l.session_id = sqlc.arg(session)::text AND l.last_token = @token AND l.rests_until <= dblock_now()
       AND q.ctid = (SELECT w.ctid FROM dblock_waiters w
                      WHERE w.name = @name AND w.ticket >= (SELECT b.first_ticket FROM dblock_locks b WHERE b.name = @name AND b.epoch >= (SELECT e.epoch FROM e)) ORDER BY w.ticket LIMIT 1)
       AND q.units = 0 AND q.lease = 0 AND q.min_hold = 0
       AND h.session_id = q.session_id AND h.expires_at > dblock_now()
    RETURNING q.name, q.ticket, q.session_id, q.host, q.thread, q.attempt, q.metadata, q.members, greatest(l.token + 1, dblock_now()) AS token
)
UPDATE dblock_locks c SET
       session_id = head.session_id, host = head.host, thread = head.thread, attempt = head.attempt, asked = '', metadata = head.metadata,
       expires_at = NULL, rests_until = 0, token = head.token + head.members - 1, first_token = head.token,
       last_token = head.token + head.members - 1, acquired_at = dblock_now(), waiters = greatest(c.waiters - head.members, 0),
       first_ticket = head.ticket + 1, (epoch, grants) = (SELECT c.epoch + (c.grants + 1) / 32, (c.grants + 1) % 32)
  FROM head WHERE c.name = @name AND c.epoch >= (SELECT e.epoch FROM e)
RETURNING head.session_id AS session, c.attempt, c.first_token, c.last_token, c.waiters, dblock_durable() AS durable,
          coalesce(CASE WHEN head.session_id <> sqlc.arg(self)::text AND pg_notification_queue_usage() < 0.95 THEN pg_notify('dblock_' || head.session_id,
              concat_ws(' ', c.attempt, CASE WHEN c.first_token < c.last_token THEN c.first_token END, c.last_token, c.waiters))::text END, '')::text AS notified;
