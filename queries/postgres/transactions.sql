-- Inside the caller's transactions, behind a savepoint, so that an error leaves them unchanged.

-- Sets the time for which a statement waits for a locked row, until the end of the transaction.
-- name: SetLockTimeout :one
SELECT set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true)::text AS lock_timeout;

-- The same in the caller's transaction, whose own setting is kept for RestoreLockTimeout. It is the first statement
-- there, and so it also returns the encodings, which tell whether the transaction can read texts.
-- name: BorrowLockTimeout :one
SELECT set_config('dblock.lock_timeout', current_setting('lock_timeout'), true)::text AS kept,
       set_config('lock_timeout', sqlc.arg(lock_timeout)::text, true)::text AS lock_timeout,
       current_setting('client_encoding')::text AS client_encoding, current_setting('server_encoding')::text AS server_encoding;

-- The same for a turn: as long as time remains (0: no end), but always long enough for the server to detect a deadlock.
-- name: BorrowTurn :one
SELECT set_config('dblock.lock_timeout', current_setting('lock_timeout'), true)::text AS kept,
       set_config('lock_timeout', least(nullif(sqlc.arg(remaining)::bigint, 0),
           (extract(epoch FROM current_setting('deadlock_timeout')::interval) * 1000)::bigint + 250)::text, true)::text AS lock_timeout,
       current_setting('client_encoding')::text AS client_encoding, current_setting('server_encoding')::text AS server_encoding;

-- name: RestoreLockTimeout :one
SELECT set_config('lock_timeout', current_setting('dblock.lock_timeout'), true)::text AS lock_timeout;

-- Makes the row of a name. It waits for another transaction that is making the row, within lock_timeout.
-- name: EnsureRow :one
SELECT (dblock_make(@name) IS NULL)::boolean AS busy;

-- An exclusive lock until the transaction ends, on the name's own row, where leases meet it. It changes nothing, but it
-- is a write: FOR UPDATE leaves no trace, and a transaction that waited at REPEATABLE READ would continue with a
-- snapshot from before the wait, without the changes made under the lock. The transaction's id is the same in all its
-- savepoints.
-- name: LockRowTx :one
WITH turn AS MATERIALIZED (
    SELECT CASE WHEN EXISTS (SELECT FROM dblock_locks l
                              WHERE l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e) FOR UPDATE SKIP LOCKED)
                THEN true ELSE dblock_wait(@name) END AS mine
), locked AS (
    UPDATE dblock_locks l SET next_ticket = l.next_ticket FROM turn
     WHERE turn.mine AND l.name = @name AND l.epoch >= (SELECT e FROM dblock_epoch(@name) e)
    RETURNING l.attempt, l.waiters,
              (l.session_id IS NULL AND l.waiters = 0 AND l.shared_units = 0 AND l.rests_until <= dblock_now()) AS free
)
SELECT (turn.mine IS NULL)::boolean AS busy, (locked.attempt IS NOT NULL)::boolean AS there,
       coalesce(locked.attempt, '')::text AS attempt, coalesce(locked.waiters, 0)::integer AS waiters, pg_current_xact_id()::text AS transaction,
       (SELECT s.database_id FROM dblock_schema s)::text AS database, coalesce(locked.free, false)::boolean AS free
  FROM turn LEFT JOIN locked ON true;

-- The id of this database, in tables of this build's version, or in a transaction of the caller.
-- name: Database :one
SELECT database_id FROM dblock_schema;
