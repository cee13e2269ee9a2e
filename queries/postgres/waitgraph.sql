-- The wait-for graph: from places in queues to the holders of the names, from a holding owner to the places where it
-- waits, and so on. A cohort that has a name is left out: the row does not tell which of its members has it. LATERAL
-- makes each step use an index, however few rows the planner expects.
-- name: WaitGraph :many
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT dblock_now() AS now
), walk AS (
    SELECT w.name, w.ticket, w.session_id, w.host, w.thread, w.attempt, false AS holds, w.units, w.enqueued_at AS since
      FROM dblock_waiters w
     WHERE w.attempt = ANY (ARRAY(SELECT jsonb_array_elements_text(sqlc.arg(attempts)::text::jsonb)))
       AND EXISTS (SELECT 1 FROM dblock_heartbeats b WHERE b.session_id = w.session_id AND b.expires_at > (SELECT clock.now FROM clock))
     UNION
    SELECT n.name, n.ticket, n.session_id, n.host, n.thread, n.attempt, n.holds, n.units, n.since
      FROM walk CROSS JOIN LATERAL (
           SELECT h.name, 0 AS ticket, h.session_id, h.host, h.thread, h.attempt, true AS holds, h.units, h.acquired_at AS since
             FROM dblock_holders h
            WHERE NOT walk.holds AND h.name = walk.name AND h.epoch >= (SELECT e FROM dblock_epoch(walk.name) e)
              AND NOT (h.units = 0 AND EXISTS (SELECT 1 FROM dblock_locks r WHERE r.name = h.name AND r.epoch >= h.epoch AND r.first_token < r.last_token))
            UNION ALL
           SELECT w.name, w.ticket, w.session_id, w.host, w.thread, w.attempt, false, w.units, w.enqueued_at
             FROM dblock_waiters w
            WHERE walk.holds AND w.session_id = walk.session_id AND w.thread = walk.thread AND w.host = walk.host) n
     WHERE EXISTS (SELECT 1 FROM dblock_heartbeats b WHERE b.session_id = n.session_id AND b.expires_at > (SELECT clock.now FROM clock))
), need AS ( -- along the queues of places that do not want the whole name themselves; room: what may be in use for all of them to fit
    SELECT n.name, q.ticket, q.whole, q.units, q.room
      FROM (SELECT DISTINCT walk.name FROM walk WHERE NOT walk.holds AND walk.units > 0) n CROSS JOIN LATERAL (
           SELECT w.ticket, bool_or(w.units = 0) OVER before AS whole, max(w.units) OVER before AS units,
                  min(w.capacity - w.units) OVER before AS room
             FROM dblock_waiters w
            WHERE w.name = n.name
              AND EXISTS (SELECT 1 FROM dblock_heartbeats b WHERE b.session_id = w.session_id AND b.expires_at > (SELECT clock.now FROM clock))
           WINDOW before AS (ORDER BY w.ticket)) q
     WHERE EXISTS (SELECT 1 FROM walk WHERE NOT walk.holds AND walk.name = n.name AND walk.ticket = q.ticket)
)
SELECT walk.name, walk.session_id::text AS session, walk.host, walk.thread, walk.attempt, walk.holds, walk.units,
       coalesce(r.capacity, CASE WHEN NOT need.whole THEN need.units + need.room END, 0)::integer AS capacity,
       CASE WHEN walk.holds OR need.whole THEN 0 ELSE coalesce(need.units, 0) END::integer AS need, walk.since
  FROM walk LEFT JOIN dblock_shares r ON walk.holds AND walk.units > 0 AND r.name = walk.name AND r.attempt = walk.attempt
  LEFT JOIN need ON NOT walk.holds AND need.name = walk.name AND need.ticket = walk.ticket;
