-- name: AddEvent :exec
INSERT INTO dblock_events (at, name, kind, token, session_id, host, thread, detail, metadata)
SELECT c.now_us, sqlc.arg(name), sqlc.arg(kind), sqlc.arg(token), sqlc.arg(session), sqlc.arg(host), sqlc.arg(thread), sqlc.arg(detail), sqlc.arg(metadata)
  FROM dblock_clock c;

-- Events of all names or of one, ascending or descending. No kinds: all.
-- name: Events :many
SELECT id, at, name, kind, token, session_id, host, thread, detail, metadata FROM dblock_events FORCE INDEX (PRIMARY)
 WHERE id > sqlc.arg(after) AND id < sqlc.arg(below) AND (sqlc.arg(kinds) = '' OR FIND_IN_SET(kind, sqlc.arg(kinds)) > 0)
 ORDER BY id LIMIT ?;

-- name: EventsOf :many
SELECT id, at, name, kind, token, session_id, host, thread, detail, metadata FROM dblock_events FORCE INDEX (dblock_events_name)
 WHERE name = sqlc.arg(name) AND id > sqlc.arg(after) AND id < sqlc.arg(below) AND (sqlc.arg(kinds) = '' OR FIND_IN_SET(kind, sqlc.arg(kinds)) > 0)
 ORDER BY id LIMIT ?;

-- name: NewestEvents :many
SELECT id, at, name, kind, token, session_id, host, thread, detail, metadata FROM dblock_events FORCE INDEX (PRIMARY)
 WHERE id > sqlc.arg(after) AND id < sqlc.arg(below) AND (sqlc.arg(kinds) = '' OR FIND_IN_SET(kind, sqlc.arg(kinds)) > 0)
 ORDER BY id DESC LIMIT ?;

-- name: NewestEventsOf :many
SELECT id, at, name, kind, token, session_id, host, thread, detail, metadata FROM dblock_events FORCE INDEX (dblock_events_name)
 WHERE name = sqlc.arg(name) AND id > sqlc.arg(after) AND id < sqlc.arg(below) AND (sqlc.arg(kinds) = '' OR FIND_IN_SET(kind, sqlc.arg(kinds)) > 0)
 ORDER BY id DESC LIMIT ?;

-- The lowest of the first thousand ids in the order of their times. Concurrent transactions may get ids and times in
-- different orders; a clock may have been set back.
-- name: EventsSince :one
SELECT CAST(COALESCE(MIN(f.id), 0) AS SIGNED) AS lowest
  FROM (SELECT e.id FROM dblock_events e WHERE e.at >= sqlc.arg(since) ORDER BY e.at LIMIT 1000) f;

-- Events of the name's present holder are kept: observers of an election find its leader by them, however long the
-- term.
-- name: OldEvents :many
SELECT e.id FROM dblock_events e
 WHERE e.at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(keep) AS SIGNED)
   AND NOT EXISTS (SELECT l.name FROM dblock_locks l WHERE l.name = e.name AND l.session_id IS NOT NULL
                      AND e.token BETWEEN l.first_token AND l.last_token)
 ORDER BY e.at LIMIT ?;

-- One row by its key, as with DropWaiter.
-- name: DropEvent :execrows
DELETE FROM dblock_events WHERE id = sqlc.arg(id);

-- The runs by which Begin of internal/slots decides. A run whose slot ends after this one began does not belong to the
-- slot before; the index of slot_ends finds it. If the job is retried, its runs that have not ended are read as well,
-- since their sessions may be dead: they are few. The last row has no name.
-- name: RunsAbout :many
SELECT r.name, r.slot, r.token, r.session_id, r.host, r.thread, r.began_at, CAST(COALESCE(r.ended_at, 0) AS SIGNED) AS ended_at, r.failed, r.detail,
       CAST(r.tries AS SIGNED) AS tries, r.slot_ends, CAST(COALESCE(h.expires_at, 0) AS SIGNED) AS session_expires_at, CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us
  FROM (SELECT n.slot FROM dblock_runs n WHERE n.name = sqlc.arg(name) AND n.slot = sqlc.arg(number)
         UNION (SELECT n.slot FROM dblock_runs n WHERE n.name = sqlc.arg(name) AND n.slot > sqlc.arg(later) AND n.slot_ends = n.slot ORDER BY n.slot DESC LIMIT 1)
         UNION (SELECT n.slot FROM dblock_runs n
                 WHERE n.name = sqlc.arg(name) AND n.slot_ends > sqlc.arg(begins) AND n.began_at >= sqlc.arg(begins) AND n.began_at < sqlc.arg(below)
                   AND (CAST(sqlc.arg(retry) AS SIGNED) = 0 OR n.failed = 0 AND n.ended_at IS NOT NULL) LIMIT 1)
         UNION SELECT n.slot FROM dblock_runs n
                WHERE n.name = sqlc.arg(name) AND n.slot_ends > sqlc.arg(begins) AND n.began_at >= sqlc.arg(begins) AND n.began_at < sqlc.arg(below)
                  AND CAST(sqlc.arg(retry) AS SIGNED) = 1 AND n.failed = 0 AND n.ended_at IS NULL) p
  JOIN dblock_runs r ON r.name = sqlc.arg(name) AND r.slot = p.slot
  LEFT JOIN dblock_heartbeats h ON h.session_id = r.session_id
UNION ALL
SELECT '', 0, 0, _ascii'', '', '', 0, 0, 0, '', 0, 0, 0, 0;

-- The run of a free slot. A duplicate key shows that the slot has a run.
-- name: MakeRun :exec
INSERT INTO dblock_runs (name, slot, token, session_id, host, thread, began_at, detail, slot_ends)
VALUES (sqlc.arg(name), sqlc.arg(slot), sqlc.arg(token), sqlc.arg(session), sqlc.arg(host), sqlc.arg(thread),
        sqlc.arg(began_at), '', sqlc.arg(slot_ends));

-- A run that replaces the one with the token replaced. 0: that run was deleted or replaced, or has succeeded.
-- name: TakeRun :execlastid
UPDATE dblock_runs FORCE INDEX (PRIMARY) SET
       token = sqlc.arg(token), session_id = sqlc.arg(session), host = sqlc.arg(host), thread = sqlc.arg(thread),
       began_at = LAST_INSERT_ID(CAST(sqlc.arg(began_at) AS SIGNED)), ended_at = NULL, failed = 0, detail = '', tries = sqlc.arg(tries), slot_ends = sqlc.arg(slot_ends)
 WHERE name = sqlc.arg(name) AND slot = sqlc.arg(slot) AND token = sqlc.arg(replaced) AND (slot_ends <> sqlc.arg(slot_ends) OR failed = 1 OR ended_at IS NULL);

-- 0: another client has replaced the run, or there is none.
-- name: EndRun :execlastid
UPDATE dblock_runs FORCE INDEX (PRIMARY) SET
       ended_at = LAST_INSERT_ID((SELECT c.now_us FROM dblock_clock c)), failed = sqlc.arg(failed), detail = sqlc.arg(detail)
 WHERE name = sqlc.arg(name) AND slot = sqlc.arg(slot) AND token = sqlc.arg(token);

-- name: Runs :many
SELECT r.name, r.slot, r.token, r.session_id, r.host, r.thread, r.began_at, CAST(COALESCE(r.ended_at, 0) AS SIGNED) AS ended_at, r.failed, r.detail,
       CAST(r.tries AS SIGNED) AS tries, r.slot_ends, CAST(COALESCE(h.expires_at, 0) AS SIGNED) AS session_expires_at, CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us
  FROM dblock_runs r LEFT JOIN dblock_heartbeats h ON h.session_id = r.session_id
 WHERE r.name = sqlc.arg(name) AND r.began_at < sqlc.arg(before) ORDER BY r.began_at DESC, r.slot DESC LIMIT ?;

-- The latest run of each name. It reads all runs of the names that it returns. LIMIT makes MySQL run the inner queries
-- once, before the outer one.
-- name: LatestRuns :many
SELECT r.name, r.slot, r.token, r.session_id, r.host, r.thread, r.began_at, CAST(COALESCE(r.ended_at, 0) AS SIGNED) AS ended_at, r.failed, r.detail,
       CAST(r.tries AS SIGNED) AS tries, r.slot_ends, CAST(COALESCE(h.expires_at, 0) AS SIGNED) AS session_expires_at, CAST((SELECT c.now_us FROM dblock_clock c) AS SIGNED) AS now_us
  FROM (SELECT d.name, (SELECT x.slot FROM dblock_runs x WHERE x.name = d.name ORDER BY x.began_at DESC, x.slot DESC LIMIT 1) AS slot
          FROM (SELECT DISTINCT n.name FROM dblock_runs n WHERE n.name > sqlc.arg(after) ORDER BY n.name LIMIT ?) d LIMIT 1000000) j
  JOIN dblock_runs r ON r.name = j.name AND r.slot = j.slot
  LEFT JOIN dblock_heartbeats h ON h.session_id = r.session_id
 ORDER BY r.name;

-- The latest moment of a name stays: no earlier one is run after it. MAX, since the statement runs on any connection of
-- the pool: MySQL refuses EXISTS beside OR with optimizer_switch='subquery_to_derived=on'.
-- name: OldRuns :many
SELECT r.name, r.slot FROM dblock_runs r
 WHERE r.slot_ends < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(keep) AS SIGNED)
   AND (r.slot_ends <> r.slot OR r.slot < (SELECT MAX(n.slot) FROM dblock_runs n WHERE n.name = r.name))
   AND COALESCE(r.ended_at, r.began_at) < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(keep) AS SIGNED)
   AND (r.ended_at IS NOT NULL OR NOT EXISTS (
       SELECT h.session_id FROM dblock_heartbeats h WHERE h.session_id = r.session_id AND h.expires_at > (SELECT c.now_us FROM dblock_clock c)))
 ORDER BY r.slot_ends LIMIT ?;

-- name: DropRun :execrows
DELETE FROM dblock_runs WHERE name = sqlc.arg(name) AND slot = sqlc.arg(slot);

-- A duplicate key shows that another client has begun it.
-- name: BeginIncarnation :exec
INSERT INTO dblock_incarnation (one, since, token_floor) SELECT 1, c.now_us, sqlc.arg(floor) FROM dblock_clock c;

-- name: RenewIncarnation :exec
UPDATE dblock_incarnation SET since = LAST_INSERT_ID((SELECT c.now_us FROM dblock_clock c)), token_floor = sqlc.arg(floor) WHERE one = 1;

-- name: Incarnation :one
SELECT CAST((SELECT c.now_us FROM dblock_clock c) - since AS SIGNED) AS age, token_floor FROM dblock_incarnation WHERE one = 1;

-- It reads the whole table of locks.
-- name: HighestToken :one
SELECT CAST(GREATEST((SELECT c.now_us FROM dblock_clock c), COALESCE((SELECT MAX(l.token) FROM dblock_locks l), 0),
                     COALESCE((SELECT i.token_floor FROM dblock_incarnation i), 0)) AS SIGNED) AS highest;
