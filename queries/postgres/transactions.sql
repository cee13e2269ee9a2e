-- Inside transactions of the caller's: behind a savepoint, so that an error leaves them as they were.

-- How long a statement waits for a row that another transaction has locked, until the end of the transaction.
-- name: Patience :one
SELECT set_config('lock_timeout', sqlc.arg(patience)::text, true)::text AS patience;

-- The same in the caller's transaction, whose own setting is kept for RestorePatience.
-- name: BorrowPatience :one
SELECT set_config('dblock.lock_timeout', current_setting('lock_timeout'), true)::text AS kept,
       set_config('lock_timeout', sqlc.arg(patience)::text, true)::text AS patience;

-- The same for who cannot be cancelled, and so waits in turns: for as long as there is time (0: no end), but always long
-- enough for a deadlock to be found.
-- name: BorrowTurn :one
SELECT set_config('dblock.lock_timeout', current_setting('lock_timeout'), true)::text AS kept,
       set_config('lock_timeout', least(nullif(sqlc.arg(remaining)::bigint, 0),
           (extract(epoch FROM current_setting('deadlock_timeout')::interval) * 1000)::bigint + 250)::text, true)::text AS patience;

-- name: RestorePatience :one
SELECT set_config('lock_timeout', current_setting('dblock.lock_timeout'), true)::text AS patience;

-- The first half of Guard. Who takes a lock over locks this row FOR UPDATE, and writes it: at REPEATABLE READ and above
-- a snapshot from before a takeover fails here.
-- name: ShareSession :one
SELECT dead FROM dblock_sessions WHERE id = @id FOR SHARE;

-- The second, in a later statement: a new snapshot at READ COMMITTED. It locks nothing, so that nobody who queues up
-- waits for the caller's transaction. unseen: the grant may be newer than the snapshot, which shows none of its tokens.
-- name: IsHeld :one
SELECT EXISTS (SELECT 1 FROM dblock_holders h
                WHERE h.name = @name AND h.session_id = sqlc.arg(session)::text AND h.token = sqlc.arg(token)::bigint
                  AND (h.expires_at IS NULL OR h.expires_at > dblock_now()))::boolean AS held,
       (current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
        AND NOT EXISTS (SELECT 1 FROM dblock_locks l WHERE l.name = @name AND l.token >= sqlc.arg(token)::bigint))::boolean AS unseen;

-- Makes the row that LockTx locks. Another transaction that is making it, and has not committed, is waited for.
-- name: EnsureRow :exec
INSERT INTO dblock_locks (name, token, acquired_at) VALUES (@name, dblock_now(), dblock_now()) ON CONFLICT (name) DO NOTHING;

-- An exclusive lock until the transaction ends: on the name's own row, where leases meet it. It changes nothing, but it
-- is a write: FOR UPDATE leaves no trace, and who waited at REPEATABLE READ would go on with a snapshot from before the
-- wait, and see nothing of what was done under the lock. The transaction's id is the same in all its savepoints.
-- name: LockRowTx :one
UPDATE dblock_locks l SET next_ticket = l.next_ticket
 WHERE l.name = @name
RETURNING l.attempt, l.waiters, pg_current_xact_id()::text AS transaction, (l.session_id IS NULL AND l.waiters = 0 AND l.shared_units = 0 AND l.rests_until <= dblock_now())::boolean AS free;
