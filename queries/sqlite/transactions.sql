-- Inside the caller's transactions.

-- Takes the database's write lock until the transaction ends, and changes no row: no session has this id.
-- name: LockDatabase :execrows
UPDATE dblock_sessions SET dead = dead WHERE id = '';

-- After LockDatabase: nothing that is read here can change before the transaction ends.
-- name: IsHeld :one
SELECT l.last_token FROM dblock_locks l
 WHERE l.name = @name AND l.session_id = CAST(@session AS TEXT) AND l.last_token = @token
   AND (l.expires_at IS NULL OR l.expires_at > (SELECT c.now_us FROM dblock_clock c))
   AND EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = l.session_id AND NOT s.dead);

-- name: IsShareHeld :one
SELECT p.token FROM dblock_shares p
 WHERE p.name = @name AND p.session_id = CAST(@session AS TEXT) AND p.token = @token
   AND (p.expires_at IS NULL OR p.expires_at > (SELECT c.now_us FROM dblock_clock c))
   AND EXISTS (SELECT 1 FROM dblock_sessions s WHERE s.id = p.session_id AND NOT s.dead);

-- The id of this database, in tables of this build's version, or in a transaction of the caller.
-- name: Database :one
SELECT database_id FROM dblock_schema;
