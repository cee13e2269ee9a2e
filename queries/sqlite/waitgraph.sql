-- The wait-for graph, from some places on: the holders of the names of these places, the places where the same owners
-- wait, and so on. The names of the places, and their attempts, come as JSON arrays: a place is found by its name, since
-- no index has the attempts alone. The need of a place covers all places before it,
-- and its capacity is such that all of them fit if it fits. Both are computed once for each queue: computed for each
-- place, they would read the queue again and again. A cohort is no holder: the row does not tell which of its members
-- has the lock.
-- name: WaitGraph :many
WITH RECURSIVE reached AS (
    SELECT w.name, w.session_id, w.host, w.thread, w.attempt, false AS holds, w.ticket, w.units, 0 AS capacity, w.enqueued_at AS since
      FROM dblock_waiters w
     WHERE w.name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)))
       AND w.attempt IN (SELECT value FROM json_each(CAST(sqlc.arg(attempts) AS TEXT)))
       AND EXISTS (SELECT 1 FROM dblock_living v WHERE v.id = w.session_id)
    UNION
    SELECT l.name, l.session_id, l.host, l.thread, l.attempt, true, 0, 0, 0, l.acquired_at
      FROM reached r JOIN dblock_locks l ON l.name = r.name
     WHERE NOT r.holds AND l.first_token = l.last_token
       AND EXISTS (SELECT 1 FROM dblock_living v WHERE v.id = l.session_id)
    UNION
    SELECT p.name, p.session_id, p.host, p.thread, p.attempt, true, 0, p.units, p.capacity, p.acquired_at
      FROM reached r JOIN dblock_shares p ON p.name = r.name
     WHERE NOT r.holds AND EXISTS (SELECT 1 FROM dblock_living v WHERE v.id = p.session_id)
    UNION
    SELECT w.name, w.session_id, w.host, w.thread, w.attempt, false, w.ticket, w.units, 0, w.enqueued_at
      FROM reached r JOIN dblock_waiters w ON w.session_id = r.session_id AND w.thread = r.thread AND w.host = r.host
     WHERE r.holds
), needs AS (
    SELECT w.name, w.ticket, CAST(CASE WHEN min(w.units) OVER q = 0 THEN 0 ELSE max(w.units) OVER q END AS INTEGER) AS need,
           CAST(CASE WHEN min(w.units) OVER q = 0 THEN 0 ELSE max(w.units) OVER q + min(w.capacity - w.units) OVER q END AS INTEGER) AS capacity
      FROM dblock_waiters w
     WHERE w.name IN (SELECT r.name FROM reached r WHERE NOT r.holds)
       AND EXISTS (SELECT 1 FROM dblock_living v WHERE v.id = w.session_id)
    WINDOW q AS (PARTITION BY w.name ORDER BY w.ticket)
)
SELECT r.name, r.session_id, r.host, r.thread, r.attempt, CAST(r.holds AS BOOLEAN) AS holds, r.units, r.since,
       CAST(COALESCE(n.capacity, r.capacity) AS INTEGER) AS capacity, CAST(COALESCE(n.need, 0) AS INTEGER) AS need
  FROM reached r
  LEFT JOIN needs n ON n.name = r.name AND n.ticket = r.ticket AND NOT r.holds;
