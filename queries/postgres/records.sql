-- name: AddEvent :exec
INSERT INTO dblock_events (at, name, kind, token, session_id, host, thread, detail, metadata)
SELECT dblock_now(), j.r ->> 'Name', j.r ->> 'Kind', (j.r ->> 'Token')::bigint, j.r ->> 'Session', j.r ->> 'Host', j.r ->> 'Thread',
       j.r ->> 'Detail', j.r ->> 'Metadata'
  FROM (SELECT jsonb_array_elements(sqlc.arg(events)::text::jsonb) AS r) j;

-- Events of all names or of one, upwards or downwards: four statements, so that each goes along one
-- index. The pairs leave only that of names for those of a name, also in a plan for any parameters.
-- name: Events :many
SELECT e.id, e.at, e.name, e.kind, e.token, e.session_id, e.host, e.thread, e.detail, e.metadata FROM dblock_events e
 WHERE e.id > sqlc.arg(after)::bigint AND e.id < sqlc.arg(below)::bigint
   AND (sqlc.arg(kinds)::text = '[]' OR e.kind = ANY (ARRAY(SELECT jsonb_array_elements_text(sqlc.arg(kinds)::text::jsonb))))
 ORDER BY e.id LIMIT @most;

-- name: EventsOf :many
SELECT e.id, e.at, e.name, e.kind, e.token, e.session_id, e.host, e.thread, e.detail, e.metadata FROM dblock_events e
 WHERE (e.name, e.id) > (sqlc.arg(name)::text, sqlc.arg(after)::bigint) AND (e.name, e.id) < (sqlc.arg(name)::text, sqlc.arg(below)::bigint)
   AND (sqlc.arg(kinds)::text = '[]' OR e.kind = ANY (ARRAY(SELECT jsonb_array_elements_text(sqlc.arg(kinds)::text::jsonb))))
 ORDER BY e.name, e.id LIMIT @most;

-- name: NewestEvents :many
SELECT e.id, e.at, e.name, e.kind, e.token, e.session_id, e.host, e.thread, e.detail, e.metadata FROM dblock_events e
 WHERE e.id > sqlc.arg(after)::bigint AND e.id < sqlc.arg(below)::bigint
   AND (sqlc.arg(kinds)::text = '[]' OR e.kind = ANY (ARRAY(SELECT jsonb_array_elements_text(sqlc.arg(kinds)::text::jsonb))))
 ORDER BY e.id DESC LIMIT @most;

-- name: NewestEventsOf :many
SELECT e.id, e.at, e.name, e.kind, e.token, e.session_id, e.host, e.thread, e.detail, e.metadata FROM dblock_events e
 WHERE (e.name, e.id) > (sqlc.arg(name)::text, sqlc.arg(after)::bigint) AND (e.name, e.id) < (sqlc.arg(name)::text, sqlc.arg(below)::bigint)
   AND (sqlc.arg(kinds)::text = '[]' OR e.kind = ANY (ARRAY(SELECT jsonb_array_elements_text(sqlc.arg(kinds)::text::jsonb))))
 ORDER BY e.name DESC, e.id DESC LIMIT @most;

-- The lowest of the first thousand ids in the order of their times. Transactions at once do not get
-- ids and times in the same order; a clock may have been set back.
-- name: EventsSince :one
SELECT coalesce(min(f.id), 0)::bigint AS lowest
  FROM (SELECT e.id FROM dblock_events e WHERE e.at >= sqlc.arg(since)::bigint ORDER BY e.at LIMIT 1000) f;

-- The slot of the clock, and whether it was still to be had. Durable, as a run that a crash forgets
-- would be run again. It is not where it has its run, or a run of another interval began in it:
-- that is run_slot. A run of another interval that has the slot's number, and did not begin in it,
-- gives its row. A run whose slot ends after this one began is none of the slot before; the index
-- of slot_ends finds it.
-- name: ClaimRun :one
WITH clock AS MATERIALIZED (
    SELECT n.now, n.now / sqlc.arg(slot_length)::bigint AS slot FROM (SELECT dblock_now() AS now OFFSET 0) n
), bounds AS MATERIALIZED (
    SELECT clock.now, clock.slot, clock.slot * sqlc.arg(slot_length)::bigint AS begins, (clock.slot + 1) * sqlc.arg(slot_length)::bigint AS ends FROM clock
), run AS MATERIALIZED (
    SELECT r.slot, true AS same FROM bounds JOIN dblock_runs r ON r.name = @name AND r.slot = bounds.slot AND r.slot_ends = bounds.ends
     UNION ALL
    (SELECT r.slot, false FROM bounds JOIN dblock_runs r ON r.name = @name AND r.slot_ends > bounds.begins
      WHERE r.began_at >= bounds.begins AND r.began_at < bounds.ends
        AND NOT (sqlc.arg(retry)::boolean AND (r.failed OR r.ended_at IS NULL AND NOT EXISTS (
               SELECT 1 FROM dblock_heartbeats h WHERE h.session_id = r.session_id AND h.expires_at > dblock_now())))
      LIMIT 1)
), claim AS (
    INSERT INTO dblock_runs AS r (name, slot, token, session_id, host, thread, began_at, slot_ends)
    SELECT @name, bounds.slot, @token, @session, @host, @thread, bounds.now, bounds.ends FROM bounds WHERE NOT EXISTS (SELECT 1 FROM run)
    ON CONFLICT (name, slot) DO UPDATE SET
           token = excluded.token, session_id = excluded.session_id, host = excluded.host, thread = excluded.thread,
           began_at = excluded.began_at, ended_at = NULL, failed = false, detail = '', tries = 1, slot_ends = excluded.slot_ends
     WHERE r.slot_ends <> excluded.slot_ends
    RETURNING r.slot, r.began_at, dblock_durable() AS durable
)
SELECT bounds.slot::bigint AS slot, coalesce(claim.began_at, 0)::bigint AS began_at,
       coalesce(run.slot, bounds.slot)::bigint AS run_slot, coalesce(run.same, true)::boolean AS same
  FROM bounds LEFT JOIN claim ON true LEFT JOIN run ON true ORDER BY same DESC LIMIT 1;

-- ClaimRun for a moment, which is the number and the end of its slot. The latest moment that has a
-- run tells whether it is too late for this one: that is run_slot, or a run of an interval that
-- began at it or after it.
-- name: ClaimMoment :one
WITH clock AS MATERIALIZED (
    SELECT n.now, sqlc.arg(moment)::bigint AS moment, sqlc.arg(moment)::bigint > n.now + sqlc.arg(ahead)::bigint AS early FROM (SELECT dblock_now() AS now OFFSET 0) n
), run AS MATERIALIZED (
    (SELECT r.slot, r.slot = clock.moment AS same FROM clock JOIN dblock_runs r ON r.name = @name AND r.slot >= clock.moment AND r.slot_ends = r.slot
      ORDER BY r.slot DESC LIMIT 1)
     UNION ALL
    (SELECT r.slot, false FROM clock JOIN dblock_runs r ON r.name = @name AND r.slot_ends > clock.moment AND r.slot_ends <> r.slot
      WHERE r.began_at >= clock.moment
        AND NOT (sqlc.arg(retry)::boolean AND (r.failed OR r.ended_at IS NULL AND NOT EXISTS (
               SELECT 1 FROM dblock_heartbeats h WHERE h.session_id = r.session_id AND h.expires_at > dblock_now())))
      LIMIT 1)
), claim AS (
    INSERT INTO dblock_runs AS r (name, slot, token, session_id, host, thread, began_at, slot_ends)
    SELECT @name, clock.moment, @token, @session, @host, @thread, clock.now, clock.moment FROM clock
     WHERE NOT clock.early AND NOT EXISTS (SELECT 1 FROM run)
    ON CONFLICT (name, slot) DO NOTHING
    RETURNING r.began_at, dblock_durable() AS durable
)
SELECT clock.early::boolean AS early, coalesce(claim.began_at, 0)::bigint AS began_at,
       coalesce(run.slot, clock.moment)::bigint AS run_slot, coalesce(run.same, true)::boolean AS same
  FROM clock LEFT JOIN claim ON true LEFT JOIN run ON true ORDER BY same LIMIT 1;

-- name: LockRun :one
SELECT r.token FROM dblock_runs r WHERE r.name = @name AND r.slot = @slot FOR UPDATE;

-- After LockRun, in a later statement: whose session is dead is not in the run's row.
-- name: ReclaimRun :one
UPDATE dblock_runs r SET
       token = @token, session_id = sqlc.arg(session)::text, host = @host, thread = @thread, began_at = dblock_now(),
       ended_at = NULL, failed = false, detail = '', tries = r.tries + 1
 WHERE r.name = @name AND r.slot = @slot
   AND (r.failed OR r.ended_at IS NULL AND NOT EXISTS (
           SELECT 1 FROM dblock_heartbeats h WHERE h.session_id = r.session_id AND h.expires_at > dblock_now()))
RETURNING r.tries, dblock_durable() AS durable;

-- A run whose session is dead has failed. slot below 0: of all slots, which are no order of runs,
-- since intervals change.
-- name: Runs :many
SELECT r.name, r.slot, r.token, r.session_id, r.host, r.thread, r.began_at, coalesce(r.ended_at, 0)::bigint AS ended_at,
       (r.failed OR r.ended_at IS NULL AND NOT EXISTS (
           SELECT 1 FROM dblock_heartbeats h WHERE h.session_id = r.session_id AND h.expires_at > dblock_now()))::boolean AS failed,
       r.detail, r.tries, r.slot_ends
  FROM dblock_runs r
 WHERE r.name = @name AND r.began_at < sqlc.arg(before)::bigint AND (sqlc.arg(slot)::bigint < 0 OR r.slot = sqlc.arg(slot)::bigint)
 ORDER BY r.began_at DESC, r.slot DESC LIMIT @most;

-- The latest run of each name. The names come one by one from the primary key; of each all runs are
-- read.
-- name: LatestRuns :many
WITH RECURSIVE job AS (
   (SELECT n.name FROM dblock_runs n WHERE n.name > sqlc.arg(after)::text ORDER BY n.name LIMIT 1)
    UNION ALL
    SELECT (SELECT n.name FROM dblock_runs n WHERE n.name > job.name ORDER BY n.name LIMIT 1) FROM job WHERE job.name IS NOT NULL
)
SELECT r.name, r.slot, r.token, r.session_id, r.host, r.thread, r.began_at, coalesce(r.ended_at, 0)::bigint AS ended_at,
       (r.failed OR r.ended_at IS NULL AND NOT EXISTS (
           SELECT 1 FROM dblock_heartbeats h WHERE h.session_id = r.session_id AND h.expires_at > dblock_now()))::boolean AS failed,
       r.detail, r.tries, r.slot_ends
  FROM (SELECT job.name FROM job WHERE job.name IS NOT NULL LIMIT @most) j
 CROSS JOIN LATERAL (SELECT l.* FROM dblock_runs l WHERE l.name = j.name ORDER BY l.began_at DESC, l.slot DESC LIMIT 1) r
 ORDER BY r.name;

-- name: EndRun :one
UPDATE dblock_runs SET ended_at = dblock_now(), failed = @failed, detail = @detail
 WHERE name = @name AND slot = @slot AND token = @token
RETURNING slot, dblock_durable() AS durable;

-- What the present holder of the name has written is kept: observers of an election find its leader
-- by it, however long the term.
-- name: PurgeEvents :many
DELETE FROM dblock_events WHERE id IN (
    SELECT e.id FROM dblock_events e
     WHERE e.at < dblock_now() - sqlc.arg(keep)::bigint
       AND NOT EXISTS (SELECT 1 FROM dblock_locks l WHERE l.name = e.name AND l.last_token = e.token AND l.session_id IS NOT NULL)
     ORDER BY e.at LIMIT @most FOR UPDATE SKIP LOCKED)
RETURNING id;

-- Of a slot that is over, and not while it runs. The latest moment of a name stays: no earlier one is
-- run after it.
-- name: PurgeRuns :many
DELETE FROM dblock_runs WHERE (name, slot) IN (
    SELECT r.name, r.slot FROM dblock_runs r
     WHERE r.slot_ends < dblock_now() - sqlc.arg(keep)::bigint AND coalesce(r.ended_at, r.began_at) < dblock_now() - sqlc.arg(keep)::bigint
       AND (r.slot_ends <> r.slot OR EXISTS (SELECT 1 FROM dblock_runs n WHERE n.name = r.name AND n.slot > r.slot))
       AND (r.ended_at IS NOT NULL OR NOT EXISTS (
           SELECT 1 FROM dblock_heartbeats h WHERE h.session_id = r.session_id AND h.expires_at > dblock_now()))
     ORDER BY r.slot_ends LIMIT @most FOR UPDATE SKIP LOCKED)
RETURNING slot;

-- name: BeginIncarnation :one
INSERT INTO dblock_incarnation (one, since, token_floor) VALUES (1, dblock_now(), @floor) ON CONFLICT (one) DO NOTHING
RETURNING one, dblock_durable() AS durable;

-- name: RenewIncarnation :one
UPDATE dblock_incarnation SET since = dblock_now(), token_floor = sqlc.arg(floor)::bigint
RETURNING one, dblock_durable() AS durable;

-- name: Incarnation :one
SELECT greatest(dblock_now() - i.since, 0)::bigint AS age, i.token_floor FROM dblock_incarnation i;

-- name: HighestToken :one
SELECT greatest(dblock_now(), (SELECT max(l.token) FROM dblock_locks l), (SELECT i.token_floor FROM dblock_incarnation i))::bigint AS highest;
