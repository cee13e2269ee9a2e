-- The wait-for graph, in one snapshot. What is found: places in queues (part 0, by ticket), which
-- lead to the names that are waited for (3), which lead to the holders of the whole name (1) or of
-- shares (2, by token), which lead to the places in queues of the same owners. Names are found
-- once, however many wait for them: otherwise as many would each lead to all who share one. The
-- order of the joins is fixed, from what is found on: MySQL would read the queue from end to end
-- for each step (200 ms against 12 with 10,000 places). The collation of owners takes no notice of
-- spaces at the end: hence the lengths. need: a place waits for as much room as the largest request
-- before its own needs, and the dead need none. room: what may be in use for all of them to fit, by
-- what they state. Which member of a cohort has the name is known to its session alone: a cohort is
-- no holder.
-- name: WaitGraph :many
WITH RECURSIVE found (part, name, number) AS (
    SELECT CAST(0 AS SIGNED), w.name, w.ticket FROM dblock_waiters w
      STRAIGHT_JOIN dblock_sessions s ON s.id = w.session_id AND s.dead = 0
      STRAIGHT_JOIN dblock_heartbeats h ON h.session_id = w.session_id AND h.expires_at > (SELECT c.now_us FROM dblock_clock c)
     WHERE w.attempt IN (sqlc.slice(attempts))
    UNION
    SELECT 3, f.name, 0 FROM found f WHERE f.part = 0
    UNION
    SELECT 1, l.name, 0 FROM found f
      STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = f.name AND l.first_token = l.last_token
      STRAIGHT_JOIN dblock_sessions s ON s.id = l.session_id AND s.dead = 0
      STRAIGHT_JOIN dblock_heartbeats h ON h.session_id = l.session_id AND h.expires_at > (SELECT c.now_us FROM dblock_clock c)
     WHERE f.part = 3
    UNION
    SELECT 2, r.name, r.token FROM found f
      STRAIGHT_JOIN dblock_shares r FORCE INDEX (PRIMARY) ON r.name = f.name
      STRAIGHT_JOIN dblock_sessions s ON s.id = r.session_id AND s.dead = 0
      STRAIGHT_JOIN dblock_heartbeats h ON h.session_id = r.session_id AND h.expires_at > (SELECT c.now_us FROM dblock_clock c)
     WHERE f.part = 3
    UNION
    SELECT 0, w.name, w.ticket FROM found f
      STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = f.name
      STRAIGHT_JOIN dblock_waiters w FORCE INDEX (dblock_waiters_owner) ON w.session_id = l.session_id AND w.thread = l.thread AND w.host = l.host
       AND CHAR_LENGTH(w.thread) = CHAR_LENGTH(l.thread) AND CHAR_LENGTH(w.host) = CHAR_LENGTH(l.host)
     WHERE f.part = 1
    UNION
    SELECT 0, w.name, w.ticket FROM found f
      STRAIGHT_JOIN dblock_shares r FORCE INDEX (PRIMARY) ON r.name = f.name AND r.token = f.number
      STRAIGHT_JOIN dblock_waiters w FORCE INDEX (dblock_waiters_owner) ON w.session_id = r.session_id AND w.thread = r.thread AND w.host = r.host
       AND CHAR_LENGTH(w.thread) = CHAR_LENGTH(r.thread) AND CHAR_LENGTH(w.host) = CHAR_LENGTH(r.host)
     WHERE f.part = 2
)
SELECT l.name, f.part <> 0 AS holds,
       COALESCE(w.session_id, r.session_id, l.session_id) AS session_id, COALESCE(w.host, r.host, l.host) AS host,
       COALESCE(w.thread, r.thread, l.thread) AS thread, COALESCE(w.attempt, r.attempt, l.attempt) AS attempt,
       CAST(COALESCE(w.units, r.units, 0) AS SIGNED) AS units, CAST(COALESCE(r.capacity, 0) AS SIGNED) AS capacity,
       CAST(COALESCE(w.enqueued_at, r.acquired_at, l.acquired_at) AS SIGNED) AS since,
       CAST(IF(COALESCE(w.units, 0) = 0 OR EXISTS (
               SELECT b.ticket FROM dblock_waiters b FORCE INDEX (PRIMARY)
                 STRAIGHT_JOIN dblock_sessions s ON s.id = b.session_id AND s.dead = 0
                 STRAIGHT_JOIN dblock_heartbeats h ON h.session_id = b.session_id AND h.expires_at > (SELECT c.now_us FROM dblock_clock c)
                WHERE b.name = w.name AND b.ticket < w.ticket AND b.units = 0), 0,
           GREATEST(w.units, COALESCE((
               SELECT MAX(b.units) FROM dblock_waiters b FORCE INDEX (PRIMARY)
                 STRAIGHT_JOIN dblock_sessions s ON s.id = b.session_id AND s.dead = 0
                 STRAIGHT_JOIN dblock_heartbeats h ON h.session_id = b.session_id AND h.expires_at > (SELECT c.now_us FROM dblock_clock c)
                WHERE b.name = w.name AND b.ticket < w.ticket AND b.units > w.units), 0))) AS SIGNED) AS need,
       CAST(COALESCE(IF(w.units > 0, (
               SELECT MIN(b.capacity - b.units) FROM dblock_waiters b FORCE INDEX (PRIMARY)
                 STRAIGHT_JOIN dblock_sessions s ON s.id = b.session_id AND s.dead = 0
                 STRAIGHT_JOIN dblock_heartbeats h ON h.session_id = b.session_id AND h.expires_at > (SELECT c.now_us FROM dblock_clock c)
                WHERE b.name = w.name AND b.ticket <= w.ticket AND b.units > 0), 0), 0) AS SIGNED) AS room
  FROM found f
  STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = f.name
  LEFT JOIN dblock_waiters w FORCE INDEX (PRIMARY) ON f.part = 0 AND w.name = f.name AND w.ticket = f.number
  LEFT JOIN dblock_shares r FORCE INDEX (PRIMARY) ON f.part = 2 AND r.name = f.name AND r.token = f.number
 WHERE f.part <> 3;
