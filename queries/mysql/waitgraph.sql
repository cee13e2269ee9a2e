-- The wait-for graph, in one snapshot. It finds places in queues (part 0, by ticket), which lead to the names that they
-- wait for (3), which lead to the holders of the whole name (1) or of shares (2, by token), which lead to the places in
-- queues of the same owners. Each name is found once, however many places wait for it: otherwise each place would lead
-- to all holders. The order of the joins is fixed: MySQL would read the queue from end to end for each step (200 ms
-- against 12 with 10,000 places). The collation of owners ignores trailing spaces: hence CHAR_LENGTH. LEFT turns a TEXT
-- into a type that MariaDB keeps in memory (1.3 ms in place of 20); no host and no thread is longer. Only its session
-- knows which member of a cohort has the name: a cohort is no holder. need: the largest request up to the place's own
-- (the whole name: 0); dead sessions need none. room: the units that may be in use for all of them to fit, by the
-- capacities that they state. The last row has no name.
-- name: WaitGraph :many
WITH RECURSIVE living AS (
    SELECT s.id FROM dblock_sessions s STRAIGHT_JOIN dblock_heartbeats h ON h.session_id = s.id
     WHERE s.dead = 0 AND h.expires_at > (SELECT c.now_us FROM dblock_clock c)
), found AS (
    SELECT CAST(0 AS SIGNED) AS part, w.name, w.ticket AS number, w.session_id, LEFT(w.host, 255) AS host, LEFT(w.thread, 255) AS thread,
           w.attempt, w.units, CAST(0 AS SIGNED) AS capacity, w.enqueued_at AS since
      FROM dblock_waiters w STRAIGHT_JOIN living s ON s.id = w.session_id
     WHERE w.attempt IN (sqlc.slice(attempts))
    UNION
    SELECT 3, f.name, 0, _ascii'', '', '', _ascii'', 0, 0, 0 FROM found f WHERE f.part = 0
    UNION
    SELECT 1, l.name, 0, l.session_id, l.host, l.thread, l.attempt, 0, 0, l.acquired_at FROM found f
      STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = f.name AND l.first_token = l.last_token
      STRAIGHT_JOIN living s ON s.id = l.session_id
     WHERE f.part = 3
    UNION
    SELECT 2, r.name, r.token, r.session_id, r.host, r.thread, r.attempt, r.units, r.capacity, r.acquired_at FROM found f
      STRAIGHT_JOIN dblock_shares r FORCE INDEX (PRIMARY) ON r.name = f.name
      STRAIGHT_JOIN living s ON s.id = r.session_id
     WHERE f.part = 3
    UNION
    SELECT 0, w.name, w.ticket, w.session_id, w.host, w.thread, w.attempt, w.units, 0, w.enqueued_at FROM found f
      STRAIGHT_JOIN dblock_waiters w FORCE INDEX (dblock_waiters_owner) ON w.session_id = f.session_id AND w.thread = f.thread AND w.host = f.host
       AND CHAR_LENGTH(w.thread) = CHAR_LENGTH(f.thread) AND CHAR_LENGTH(w.host) = CHAR_LENGTH(f.host)
     WHERE f.part IN (1, 2)
), upto AS (
    SELECT f.name, f.number, IF(MIN(b.units) = 0, 0, MAX(b.units)) AS need, MIN(b.capacity - b.units) AS room FROM found f
      STRAIGHT_JOIN dblock_waiters b FORCE INDEX (PRIMARY) ON b.name = f.name AND b.ticket <= f.number
      STRAIGHT_JOIN living s ON s.id = b.session_id
     WHERE f.part = 0 AND f.units > 0
     GROUP BY f.name, f.number
)
SELECT e.name, e.holds, e.session_id, e.host, e.thread, e.attempt, e.units, e.capacity, e.since, e.need, e.room
  FROM (SELECT f.name, f.part <> 0 AS holds, f.session_id, f.host, f.thread, f.attempt, CAST(f.units AS SIGNED) AS units,
               CAST(f.capacity AS SIGNED) AS capacity, CAST(f.since AS SIGNED) AS since,
               CAST(COALESCE(u.need, 0) AS SIGNED) AS need, CAST(COALESCE(u.room, 0) AS SIGNED) AS room
          FROM found f
          LEFT JOIN upto u ON f.part = 0 AND u.name = f.name AND u.number = f.number
         WHERE f.part <> 3
        UNION ALL
        SELECT '', 0, _ascii'', '', '', _ascii'', 0, 0, 0, 0, 0) e;
