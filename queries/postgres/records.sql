-- name: AddEvent :exec
INSERT INTO dblock_events (at, name, kind, token, session_id, host, thread, detail, metadata)
SELECT dblock_now(), j.r ->> 'Name', j.r ->> 'Kind', (j.r ->> 'Token')::bigint, j.r ->> 'Session', j.r ->> 'Host', j.r ->> 'Thread',
       j.r ->> 'Detail', j.r ->> 'Metadata'
  FROM (SELECT jsonb_array_elements(sqlc.arg(events)::text::jsonb) AS r) j;

-- AddEvent for a sequence of ids that is behind, as after a switch of logical replication. Two simultaneous statements
-- seldom choose the same id, and are then repeated.
-- name: AddEventAhead :exec
INSERT INTO dblock_events (id, at, name, kind, token, session_id, host, thread, detail, metadata) OVERRIDING SYSTEM VALUE
SELECT ahead.id + row_number() OVER (ORDER BY j.nth), dblock_now(), j.r ->> 'Name', j.r ->> 'Kind', (j.r ->> 'Token')::bigint, j.r ->> 'Session',
       j.r ->> 'Host', j.r ->> 'Thread', j.r ->> 'Detail', j.r ->> 'Metadata'
  FROM jsonb_array_elements(sqlc.arg(events)::text::jsonb) WITH ORDINALITY AS j(r, nth)
 CROSS JOIN (SELECT coalesce(max(e.id), 0) + floor(1000 * random())::bigint AS id FROM dblock_events e) ahead;

-- Events of all names or of one, ascending or descending: four statements, so that each uses one index. With the pairs,
-- only the index of names fits the events of one name, also in a generic plan.
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

-- The lowest of the first thousand ids in the order of their times. Concurrent transactions may get ids and times in
-- different orders; a clock may have been set back.
-- name: EventsSince :one
SELECT coalesce(min(f.id), 0)::bigint AS lowest
  FROM (SELECT e.id FROM dblock_events e WHERE e.at >= sqlc.arg(since)::bigint ORDER BY e.at LIMIT 1000) f;

-- The runs by which Begin of internal/slots decides. A run whose slot ends after this one began does not belong to the
-- slot before; the index of slot_ends finds it. If the job is retried, its runs that have not ended are read as well,
-- since their sessions may be dead: they are few.
-- name: RunsAbout :many
SELECT r.name, r.slot, r.token, r.session_id, r.host, r.thread, r.began_at, coalesce(r.ended_at, 0)::bigint AS ended_at, r.failed, r.detail,
       r.tries::bigint AS tries, r.slot_ends, coalesce(h.expires_at, 0)::bigint AS session_expires_at, dblock_now() AS now_us
  FROM dblock_runs r LEFT JOIN dblock_heartbeats h ON h.session_id = r.session_id
 WHERE r.name = @name AND r.slot = ANY (ARRAY(
    SELECT sqlc.arg(number)::bigint UNION
   (SELECT n.slot FROM dblock_runs n WHERE n.name = @name AND n.slot > sqlc.arg(later)::bigint AND n.slot_ends = n.slot ORDER BY n.slot DESC LIMIT 1) UNION
   (SELECT n.slot FROM dblock_runs n
     WHERE n.name = @name AND n.slot_ends > sqlc.arg(begins)::bigint AND n.began_at >= sqlc.arg(begins)::bigint AND n.began_at < sqlc.arg(below)::bigint
       AND (NOT sqlc.arg(retry)::boolean OR NOT n.failed AND n.ended_at IS NOT NULL) LIMIT 1) UNION
    SELECT n.slot FROM dblock_runs n
     WHERE n.name = @name AND n.slot_ends > sqlc.arg(begins)::bigint AND n.began_at >= sqlc.arg(begins)::bigint AND n.began_at < sqlc.arg(below)::bigint
       AND sqlc.arg(retry)::boolean AND NOT n.failed AND n.ended_at IS NULL));

-- A run that replaces the one with the token replaced (0: none). Durable, since a run that a crash forgets would be run
-- again.
-- name: ClaimRun :one
INSERT INTO dblock_runs AS r (name, slot, token, session_id, host, thread, began_at, tries, slot_ends)
VALUES (@name, @slot, @token, @session, @host, @thread, @began_at, @tries, @slot_ends)
ON CONFLICT (name, slot) DO UPDATE SET
       token = excluded.token, session_id = excluded.session_id, host = excluded.host, thread = excluded.thread, began_at = excluded.began_at,
       ended_at = NULL, failed = false, detail = '', tries = excluded.tries, slot_ends = excluded.slot_ends
 WHERE r.token = sqlc.arg(replaced)::bigint AND (r.slot_ends <> excluded.slot_ends OR r.failed OR r.ended_at IS NULL)
RETURNING r.slot, dblock_durable() AS durable;

-- name: Runs :many
SELECT r.name, r.slot, r.token, r.session_id, r.host, r.thread, r.began_at, coalesce(r.ended_at, 0)::bigint AS ended_at, r.failed, r.detail,
       r.tries::bigint AS tries, r.slot_ends, coalesce(h.expires_at, 0)::bigint AS session_expires_at, dblock_now() AS now_us
  FROM dblock_runs r LEFT JOIN dblock_heartbeats h ON h.session_id = r.session_id
 WHERE r.name = @name AND r.began_at < sqlc.arg(before)::bigint
 ORDER BY r.began_at DESC, r.slot DESC LIMIT @most;

-- The latest run of each name. The names come one by one from the primary key; all runs of each are read.
-- name: LatestRuns :many
WITH RECURSIVE job AS (
   (SELECT n.name FROM dblock_runs n WHERE n.name > sqlc.arg(after)::text ORDER BY n.name LIMIT 1)
    UNION ALL
    SELECT (SELECT n.name FROM dblock_runs n WHERE n.name > job.name ORDER BY n.name LIMIT 1) FROM job WHERE job.name IS NOT NULL
)
SELECT r.name, r.slot, r.token, r.session_id, r.host, r.thread, r.began_at, coalesce(r.ended_at, 0)::bigint AS ended_at, r.failed, r.detail,
       r.tries::bigint AS tries, r.slot_ends, coalesce(h.expires_at, 0)::bigint AS session_expires_at, dblock_now() AS now_us
  FROM (SELECT job.name FROM job WHERE job.name IS NOT NULL LIMIT @most) j
 CROSS JOIN LATERAL (SELECT l.* FROM dblock_runs l WHERE l.name = j.name ORDER BY l.began_at DESC, l.slot DESC LIMIT 1) r
  LEFT JOIN dblock_heartbeats h ON h.session_id = r.session_id
 ORDER BY r.name;

-- name: EndRun :one
UPDATE dblock_runs SET ended_at = dblock_now(), failed = @failed, detail = @detail
 WHERE name = @name AND slot = @slot AND token = @token
RETURNING slot, dblock_durable() AS durable;

-- Events of the name's present holder are kept: observers of an election find its leader by them, however long the
-- term.
-- name: PurgeEvents :many
DELETE FROM dblock_events WHERE id IN (
    SELECT e.id FROM dblock_events e
     WHERE e.at < dblock_now() - sqlc.arg(keep)::bigint
       AND NOT EXISTS (SELECT 1 FROM dblock_locks l WHERE l.name = e.name AND l.session_id IS NOT NULL
                          AND e.token BETWEEN l.first_token AND l.last_token)
     ORDER BY e.at LIMIT @most FOR UPDATE SKIP LOCKED)
RETURNING id;

-- Runs of slots that have ended, unless they still run. The latest moment of a name stays: no earlier one is run after
-- it.
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
