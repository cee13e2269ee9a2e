-- The rows of a name, in a transaction that has the write lock. Package protocol decides their changes.

-- The head of the queue is the lowest ticket.
-- name: LockRow :one
SELECT COALESCE(l.session_id, '') AS session, l.host, l.thread, l.attempt, l.first_token, l.last_token, l.token, l.acquired_at,
       COALESCE(l.expires_at, 0) AS expires_at, l.rests_until, l.metadata, l.asked, l.shared_units, l.capacity, l.mixed, l.waiters,
       CAST(COALESCE((SELECT min(w.ticket) FROM dblock_waiters w WHERE w.name = l.name), l.next_ticket) AS INTEGER) AS head,
       l.next_ticket, c.now_us
  FROM dblock_locks l CROSS JOIN dblock_clock c WHERE l.name = @name;

-- name: MakeLock :exec
INSERT INTO dblock_locks (name, token, acquired_at) VALUES (@name, 0, 0);

-- name: WriteLock :exec
UPDATE dblock_locks SET
       session_id = @session, host = @host, thread = @thread, attempt = @attempt, first_token = @first_token,
       last_token = @last_token, token = @token, acquired_at = @acquired_at, expires_at = @expires_at,
       rests_until = @rests_until, metadata = @metadata, asked = @asked, shared_units = @shared_units,
       capacity = @capacity, mixed = @mixed, waiters = @waiters, next_ticket = @next_ticket
 WHERE name = @name;

-- name: WriteQueue :exec
UPDATE dblock_locks SET capacity = @capacity, waiters = @waiters, next_ticket = @next_ticket WHERE name = @name;

-- name: Places :many
SELECT w.ticket, w.session_id, w.host, w.thread, w.attempt, w.members, w.lease, w.metadata, w.min_hold, w.units, w.capacity,
       w.enqueued_at, CAST(EXISTS (SELECT 1 FROM dblock_living v WHERE v.id = w.session_id) AS BOOLEAN) AS alive
  FROM dblock_waiters w WHERE w.name = @name AND w.ticket > CAST(sqlc.arg(after) AS INTEGER)
 ORDER BY w.ticket LIMIT @most;

-- The place is found by its name, since no index has the attempts alone. The plus sign keeps SQLite from reading all
-- places of the session instead.
-- name: PlaceOf :one
SELECT w.ticket, w.session_id, w.host, w.thread, w.attempt, w.members, w.lease, w.metadata, w.min_hold, w.units, w.capacity,
       w.enqueued_at, CAST(EXISTS (SELECT 1 FROM dblock_living v WHERE v.id = w.session_id) AS BOOLEAN) AS alive
  FROM dblock_waiters w WHERE w.attempt = @attempt AND w.name = @name AND +w.session_id = @session;

-- name: AddPlace :exec
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, members, lease, metadata, min_hold, units, capacity, enqueued_at)
VALUES (@name, @ticket, @session, @host, @thread, @attempt, @members, @lease, @metadata, @min_hold, @units, @capacity, @enqueued_at);

-- A place that has grown.
-- name: SetMembers :exec
UPDATE dblock_waiters SET members = @members WHERE name = @name AND ticket = @ticket;

-- name: DropPlace :exec
DELETE FROM dblock_waiters WHERE name = @name AND ticket = @ticket;

-- name: Shares :many
SELECT p.session_id, p.host, p.thread, p.attempt, p.token, p.units, p.capacity, p.acquired_at,
       COALESCE(p.expires_at, 0) AS expires_at, p.metadata, p.asked
  FROM dblock_shares p WHERE p.name = @name ORDER BY p.token;

-- name: SharesWith :many
SELECT p.session_id, p.host, p.thread, p.attempt, p.token, p.units, p.capacity, p.acquired_at,
       COALESCE(p.expires_at, 0) AS expires_at, p.metadata, p.asked
  FROM dblock_shares p WHERE p.name = @name AND p.token IN (sqlc.slice(tokens));

-- name: ShareOfAttempt :one
SELECT p.session_id, p.host, p.thread, p.attempt, p.token, p.units, p.capacity, p.acquired_at,
       COALESCE(p.expires_at, 0) AS expires_at, p.metadata, p.asked
  FROM dblock_shares p WHERE p.attempt = @attempt AND p.name = @name AND p.session_id = @session;

-- Of an existing share, only the end of its lease and the reason in asked can change.
-- name: PutShare :exec
INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, capacity, acquired_at, expires_at, metadata, asked)
VALUES (@name, @token, @session, @host, @thread, @attempt, @units, @capacity, @acquired_at, @expires_at, @metadata, @asked)
ON CONFLICT (name, token) DO UPDATE SET expires_at = excluded.expires_at, asked = excluded.asked;

-- name: DropShare :exec
DELETE FROM dblock_shares WHERE name = @name AND token = @token;

-- name: Clock :one
SELECT c.now_us FROM dblock_clock c;

-- The short way for a plain request for a free name; more is the number of further members of a cohort. The tokens are
-- computed from the existing row: excluded only brings the time and their number. A text is parsed anew each time,
-- which is most of its price.
-- name: TakeLock :one
INSERT INTO dblock_locks (name, session_id, host, thread, attempt, token, first_token, last_token, acquired_at, expires_at, metadata)
SELECT CAST(@name AS TEXT), CAST(@session AS TEXT), CAST(@host AS TEXT), CAST(@thread AS TEXT), CAST(@attempt AS TEXT),
       c.now_us + CAST(@more AS INTEGER), c.now_us, c.now_us + CAST(@more AS INTEGER), c.now_us,
       CASE WHEN CAST(@lease AS INTEGER) > 0 THEN c.now_us + CAST(@lease AS INTEGER) END, CAST(@metadata AS TEXT)
  FROM dblock_clock c WHERE true
ON CONFLICT (name) DO UPDATE SET
       session_id = excluded.session_id, host = excluded.host, thread = excluded.thread, attempt = excluded.attempt,
       token = max(dblock_locks.token + 1, excluded.acquired_at) + excluded.token - excluded.acquired_at,
       first_token = max(dblock_locks.token + 1, excluded.acquired_at),
       last_token = max(dblock_locks.token + 1, excluded.acquired_at) + excluded.token - excluded.acquired_at,
       acquired_at = excluded.acquired_at, expires_at = excluded.expires_at, metadata = excluded.metadata
 WHERE dblock_locks.session_id IS NULL AND dblock_locks.waiters = 0 AND dblock_locks.shared_units = 0
   AND dblock_locks.rests_until <= excluded.acquired_at
RETURNING first_token, last_token, acquired_at;

-- name: ReleaseIdle :execrows
UPDATE dblock_locks SET
       session_id = NULL, host = '', thread = '', attempt = '',
       acquired_at = (SELECT c.now_us FROM dblock_clock c), expires_at = NULL, metadata = '', asked = ''
 WHERE name = @name AND session_id = CAST(@session AS TEXT) AND last_token = @token AND waiters = 0;

-- The totals of a name's places and shares. It always returns a row.
-- name: Tally :one
SELECT CAST(COALESCE((SELECT sum(w.members) FROM dblock_waiters w WHERE w.name = @name), 0) AS INTEGER) AS waiters,
       CAST(COALESCE((SELECT min(w.ticket) FROM dblock_waiters w WHERE w.name = @name), 0) AS INTEGER) AS lowest,
       CAST(COALESCE((SELECT max(w.ticket) FROM dblock_waiters w WHERE w.name = @name), 0) AS INTEGER) AS highest,
       CAST(COALESCE((SELECT sum(r.units) FROM dblock_shares r WHERE r.name = @name), 0) AS INTEGER) AS units,
       CAST(COALESCE((SELECT min(r.capacity) FROM dblock_shares r WHERE r.name = @name), 0) AS INTEGER) AS smallest,
       CAST(COALESCE((SELECT max(r.capacity) FROM dblock_shares r WHERE r.name = @name), 0) AS INTEGER) AS largest;

-- Names whose rows disagree with their places and shares, among the names that have any, and those from after to upto
-- ('': the last). It reads no other rows: the upper end is one value, since OR bounds no range, and IN keeps the planner from
-- reading all names in their order.
-- name: Miscounted :many
SELECT l.name
  FROM dblock_locks l
 WHERE l.name IN (SELECT w.name FROM dblock_waiters w UNION SELECT r.name FROM dblock_shares r
         UNION SELECT n.name FROM dblock_locks n WHERE n.name > CAST(@after AS TEXT)
           AND n.name <= COALESCE(NULLIF(CAST(@upto AS TEXT), ''), (SELECT max(m.name) FROM dblock_locks m)))
   AND (l.waiters <> COALESCE((SELECT sum(w.members) FROM dblock_waiters w WHERE w.name = l.name), 0)
    OR l.shared_units <> COALESCE((SELECT sum(r.units) FROM dblock_shares r WHERE r.name = l.name), 0)
    OR l.next_ticket <= COALESCE((SELECT max(w.ticket) FROM dblock_waiters w WHERE w.name = l.name), 0))
 ORDER BY l.name LIMIT @most;
