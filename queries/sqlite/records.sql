-- name: AddEvent :exec
INSERT INTO dblock_events (at, name, kind, token, session_id, host, thread, detail, metadata)
SELECT c.now_us, CAST(@name AS TEXT), CAST(@kind AS TEXT), CAST(@token AS INTEGER), CAST(@session AS TEXT),
       CAST(@host AS TEXT), CAST(@thread AS TEXT), CAST(@detail AS TEXT), CAST(@metadata AS TEXT)
  FROM dblock_clock c;

-- Events of all names or of one, ascending or descending. The kinds come as a JSON array; an empty one is all.
-- name: Events :many
SELECT v.* FROM dblock_events v
 WHERE v.id > @after AND v.id < @below
   AND (CAST(sqlc.arg(kinds) AS TEXT) = '[]' OR v.kind IN (SELECT value FROM json_each(CAST(sqlc.arg(kinds) AS TEXT))))
 ORDER BY v.id LIMIT @most;

-- name: EventsOf :many
SELECT v.* FROM dblock_events v
 WHERE v.name = @name AND v.id > @after AND v.id < @below
   AND (CAST(sqlc.arg(kinds) AS TEXT) = '[]' OR v.kind IN (SELECT value FROM json_each(CAST(sqlc.arg(kinds) AS TEXT))))
 ORDER BY v.id LIMIT @most;

-- name: NewestEvents :many
SELECT v.* FROM dblock_events v
 WHERE v.id > @after AND v.id < @below
   AND (CAST(sqlc.arg(kinds) AS TEXT) = '[]' OR v.kind IN (SELECT value FROM json_each(CAST(sqlc.arg(kinds) AS TEXT))))
 ORDER BY v.id DESC LIMIT @most;

-- name: NewestEventsOf :many
SELECT v.* FROM dblock_events v
 WHERE v.name = @name AND v.id > @after AND v.id < @below
   AND (CAST(sqlc.arg(kinds) AS TEXT) = '[]' OR v.kind IN (SELECT value FROM json_each(CAST(sqlc.arg(kinds) AS TEXT))))
 ORDER BY v.id DESC LIMIT @most;

-- The lowest of the first thousand ids in the order of their times: a clock may have been set back.
-- name: EventsSince :one
SELECT CAST(COALESCE(min(f.id), 0) AS INTEGER) AS lowest
  FROM (SELECT v.id FROM dblock_events v WHERE v.at >= @since ORDER BY v.at LIMIT 1000) AS f;

-- The runs by which Begin of internal/slots decides. A run whose slot ends after this one began does not belong to the
-- slot before; the + makes SQLite use the index of slot_ends. If the job is retried, its runs that have not ended are
-- read as well, since their sessions may be dead: they are few.
-- name: RunsAbout :many
SELECT r.name, r.slot, r.token, r.session_id, r.host, r.thread, r.began_at, CAST(COALESCE(r.ended_at, 0) AS INTEGER) AS ended_at, r.failed, r.detail,
       r.tries, r.slot_ends, CAST(COALESCE(h.expires_at, 0) AS INTEGER) AS session_expires_at, c.now_us
  FROM dblock_runs r CROSS JOIN dblock_clock c LEFT JOIN dblock_heartbeats h ON h.session_id = r.session_id
 WHERE r.name = @name AND r.slot IN (
    SELECT n.slot FROM dblock_runs n WHERE n.name = @name AND n.slot = @number UNION
    SELECT * FROM (SELECT n.slot FROM dblock_runs n WHERE n.name = @name AND n.slot > @later AND n.slot_ends = n.slot ORDER BY n.slot DESC LIMIT 1) UNION
    SELECT * FROM (SELECT n.slot FROM dblock_runs n
     WHERE +n.name = @name AND n.slot_ends > @begins AND n.began_at >= @begins AND n.began_at < @below
       AND (NOT CAST(@retry AS BOOLEAN) OR NOT n.failed AND n.ended_at IS NOT NULL) LIMIT 1) UNION
    SELECT n.slot FROM dblock_runs n
     WHERE +n.name = @name AND n.slot_ends > @begins AND n.began_at >= @begins AND n.began_at < @below
       AND CAST(@retry AS BOOLEAN) AND NOT n.failed AND n.ended_at IS NULL);

-- After RunsAbout, in its transaction.
-- name: ClaimRun :exec
INSERT OR REPLACE INTO dblock_runs (name, slot, token, session_id, host, thread, began_at, tries, slot_ends)
VALUES (@name, @slot, @token, @session, @host, @thread, @began_at, @tries, @slot_ends);

-- name: EndRun :execrows
UPDATE dblock_runs SET ended_at = (SELECT c.now_us FROM dblock_clock c), failed = @failed, detail = @detail
 WHERE name = @name AND slot = @slot AND token = @token;

-- name: Runs :many
SELECT r.name, r.slot, r.token, r.session_id, r.host, r.thread, r.began_at, CAST(COALESCE(r.ended_at, 0) AS INTEGER) AS ended_at, r.failed, r.detail,
       r.tries, r.slot_ends, CAST(COALESCE(h.expires_at, 0) AS INTEGER) AS session_expires_at, c.now_us
  FROM dblock_runs r CROSS JOIN dblock_clock c LEFT JOIN dblock_heartbeats h ON h.session_id = r.session_id
 WHERE r.name = @name AND r.began_at < @before
 ORDER BY r.began_at DESC, r.slot DESC LIMIT @most;

-- The latest run of each name. It reads all runs of the names that it returns.
-- name: LatestRuns :many
SELECT r.name, r.slot, r.token, r.session_id, r.host, r.thread, r.began_at, CAST(COALESCE(r.ended_at, 0) AS INTEGER) AS ended_at, r.failed, r.detail,
       r.tries, r.slot_ends, CAST(COALESCE(h.expires_at, 0) AS INTEGER) AS session_expires_at, c.now_us
  FROM (SELECT DISTINCT d.name FROM dblock_runs d WHERE d.name > @after ORDER BY d.name LIMIT @most) AS j
 CROSS JOIN dblock_runs r CROSS JOIN dblock_clock c LEFT JOIN dblock_heartbeats h ON h.session_id = r.session_id
 WHERE r.name = j.name
   AND r.slot = (SELECT x.slot FROM dblock_runs x WHERE x.name = j.name ORDER BY x.began_at DESC, x.slot DESC LIMIT 1)
 ORDER BY r.name;

-- Events of the name's present holder are kept: observers of an election find its leader by them, however long the
-- term.
-- name: PurgeEvents :execrows
DELETE FROM dblock_events WHERE id IN (
    SELECT v.id FROM dblock_events v WHERE v.at < (SELECT c.now_us FROM dblock_clock c) - CAST(sqlc.arg(keep) AS INTEGER)
       AND NOT EXISTS (SELECT 1 FROM dblock_locks l WHERE l.name = v.name AND l.session_id IS NOT NULL
                          AND v.token >= l.first_token AND v.token <= l.last_token)
     ORDER BY v.at LIMIT @most);

-- Both the run and its slot must have ended: a slot without its row would be run again. The latest moment of a name
-- stays: no earlier one is run after it.
-- name: PurgeRuns :execrows
DELETE FROM dblock_runs WHERE (name, slot) IN (
    SELECT r.name, r.slot FROM dblock_runs r CROSS JOIN dblock_clock c
     WHERE r.slot_ends < c.now_us - CAST(sqlc.arg(keep) AS INTEGER)
       AND (r.slot_ends <> r.slot OR EXISTS (SELECT 1 FROM dblock_runs n WHERE n.name = r.name AND n.slot > r.slot))
       AND (r.ended_at < c.now_us - CAST(sqlc.arg(keep) AS INTEGER)
            OR r.ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM dblock_living v WHERE v.id = r.session_id))
     ORDER BY r.slot_ends LIMIT @most);

-- name: Incarnation :one
SELECT CAST(c.now_us - i.since AS INTEGER) AS age, i.token_floor FROM dblock_incarnation i CROSS JOIN dblock_clock c;

-- name: Incarnate :exec
INSERT INTO dblock_incarnation (one, since, token_floor)
SELECT 1, c.now_us, CAST(sqlc.arg(floor) AS INTEGER) FROM dblock_clock c WHERE true
ON CONFLICT (one) DO UPDATE SET since = excluded.since, token_floor = excluded.token_floor;

-- name: HighestToken :one
SELECT CAST(max(c.now_us, coalesce((SELECT max(l.token) FROM dblock_locks l), 0), coalesce((SELECT i.token_floor FROM dblock_incarnation i), 0)) AS INTEGER) AS highest
  FROM dblock_clock c;
