-- Several names at once. Names, requests and locks come as a JSON array, which every driver can send. Names are made an
-- array, which is looked up in the index whatever the planner estimates. A statement for several rows makes and locks
-- them in the order of their names, so that no two transactions wait for each other.

-- name: EnsureRows :execrows
SELECT dblock_make(n.name)
  FROM (SELECT jsonb_array_elements_text(sqlc.arg(names)::text::jsonb) COLLATE "C" AS name ORDER BY 1) n
 WHERE (SELECT e FROM dblock_epoch(n.name) e) IS NULL;

-- Takes and releases for many callers, none of which waits for another: locked rows are left out. Each row is judged as
-- it is once it is locked, which may be later than the statement's snapshot. A share whose release may raise the
-- smallest number that the holders state is left out, since the snapshot may lack one of the holders. Without a take
-- the commit need not reach the disk, as with ReleaseIdle. Each row is looked up by itself, in the index: a join of two
-- lists, of which the planner expects one row each, would compare each with each. With "= ANY (ARRAY[name])" in place of "= name"
-- there is no plan that goes along the whole index, which has all versions of the rows beside an old snapshot.
-- name: BatchRows :many
WITH want AS MATERIALIZED (
    SELECT (j.r ->> 'Name')::text COLLATE "C" AS name, (j.r ->> 'Order')::integer AS nth, (j.r ->> 'Token')::bigint AS releases,
           (j.r ->> 'Session')::text COLLATE "C" AS session_id, (j.r ->> 'Host')::text AS host, (j.r ->> 'Thread')::text AS thread,
           (j.r ->> 'Attempt')::text AS attempt, (j.r ->> 'Lease')::bigint AS lease, (j.r ->> 'Metadata')::text AS metadata,
           dblock_now() AS now_us,
           (SELECT e FROM dblock_epoch((j.r ->> 'Name')::text COLLATE "C") e) AS epoch
      FROM (SELECT jsonb_array_elements(sqlc.arg(wants)::text::jsonb) AS r) j
), locked AS MATERIALIZED (
    SELECT want.*, l.session_id AS holder, l.token, l.last_token, l.waiters, l.shared_units, l.mixed, l.rests_until
      FROM want CROSS JOIN LATERAL (
           SELECT c.session_id, c.token, c.last_token, c.waiters, c.shared_units, c.mixed, c.rests_until FROM dblock_locks c
            WHERE c.name = want.name AND c.epoch >= want.epoch FOR UPDATE SKIP LOCKED) l
), taken AS (
    UPDATE dblock_locks l SET
           session_id = k.session_id, host = k.host, thread = k.thread, attempt = k.attempt, metadata = k.metadata,
           expires_at = CASE WHEN k.lease > 0 THEN k.now_us + k.lease END,
           rests_until = 0, token = greatest(k.token + 1, k.now_us), first_token = greatest(k.token + 1, k.now_us),
           last_token = greatest(k.token + 1, k.now_us), acquired_at = k.now_us, asked = '',
           (epoch, grants) = (SELECT l.epoch + (l.grants + 1) / 32, (l.grants + 1) % 32)
      FROM locked k
     WHERE k.releases = 0 AND k.holder IS NULL AND k.waiters = 0 AND k.shared_units = 0 AND k.rests_until <= k.now_us
       AND l.name = ANY (ARRAY[k.name]) AND l.epoch >= k.epoch
    RETURNING k.nth, l.token
), shares AS (
    DELETE FROM dblock_shares s USING locked k
     WHERE k.releases > 0 AND k.waiters = 0 AND NOT k.mixed AND s.name = ANY (ARRAY[k.name]) AND s.session_id = k.session_id AND s.token = k.releases
    RETURNING k.nth::integer AS nth, s.name, k.epoch::bigint AS epoch, s.token, s.units
), released AS (
    SELECT shares.nth, shares.name, shares.epoch, shares.token, shares.units FROM shares
     UNION ALL
    SELECT k.nth, k.name, k.epoch, k.last_token, 0 FROM locked k
     WHERE k.releases > 0 AND k.waiters = 0 AND k.holder = k.session_id AND k.last_token = k.releases
), locks AS (
    UPDATE dblock_locks l SET
           session_id = NULL, host = '', thread = '', attempt = '', expires_at = NULL, metadata = '', asked = '',
           acquired_at = CASE WHEN l.shared_units = r.units THEN dblock_now() ELSE l.acquired_at END, shared_units = l.shared_units - r.units
      FROM (SELECT released.name, released.epoch, sum(released.units) AS units FROM released GROUP BY released.name, released.epoch) r
     WHERE l.name = ANY (ARRAY[r.name]) AND l.epoch >= r.epoch
    RETURNING l.name
)
SELECT taken.nth::integer AS nth, taken.token::bigint AS token, dblock_durable()::boolean AS durable FROM taken
 UNION ALL
SELECT released.nth, released.token, EXISTS (SELECT FROM taken) OR set_config('synchronous_commit', 'off', true) <> 'off' FROM released;
