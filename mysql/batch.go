package mysql

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/protocol"
)

// taken is the row of a name after a batch has taken the name.
type taken struct {
	Name     string `json:"n"` // in hexadecimal digits: names are bytes
	Session  string `json:"s"`
	Host     string `json:"h"`
	Thread   string `json:"t"`
	Attempt  string `json:"a"`
	Token    int64  `json:"k"`
	Ends     *int64 `json:"e,omitempty"` // of a fixed lease
	Rests    int64  `json:"r"`
	Metadata string `json:"m"`
}

// takeRows and makeRows do for many names what TakeLock (after LockRows) and MakeRow do for one.
// sqlc does not know JSON_TABLE. The list is ASCII, so it arrives intact in every character set.
const (
	takeRows = `-- name: TakeRows :execrows
UPDATE JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (name VARCHAR(510) PATH '$.n', session_id VARCHAR(32) PATH '$.s', host TEXT PATH '$.h',
         thread TEXT PATH '$.t', attempt VARCHAR(32) PATH '$.a', token BIGINT PATH '$.k', expires_at BIGINT PATH '$.e', rests_until BIGINT PATH '$.r',
         metadata MEDIUMTEXT PATH '$.m')) j
  STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = UNHEX(j.name)
   SET l.token = j.token, l.first_token = j.token, l.last_token = j.token, l.session_id = j.session_id, l.host = j.host, l.thread = j.thread, l.attempt = j.attempt,
       l.acquired_at = ?, l.expires_at = j.expires_at, l.rests_until = j.rests_until, l.metadata = j.metadata`
	makeRows = `-- name: MakeRows :execrows
INSERT INTO dblock_locks (name, host, thread, token, acquired_at, metadata)
SELECT UNHEX(j.name), '', '', c.now_us, c.now_us, ''
  FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (name VARCHAR(510) PATH '$')) j JOIN dblock_clock c
 ORDER BY UNHEX(j.name)
ON DUPLICATE KEY UPDATE name = dblock_locks.name`
)

// batch skips rows that are locked at the moment. It first makes the rows of new names, and then
// takes and releases in a single transaction. An error of batch applies to all results.
func (e *engine) batch(ctx context.Context, ops []protocol.Op) ([]protocol.Result, error) {
	results, fresh, err := e.tryBatch(ctx, ops, true)
	if err == nil && len(fresh) > 0 {
		_ = e.makeRows(ctx, fresh) // names that are still new are left to their own statements
		results, _, err = e.tryBatch(ctx, ops, false)
	}
	if err != nil {
		return nil, err
	}
	return results, nil
}

// tryBatch runs the ops on names that have rows. If ask is true and a name to be taken has no row,
// tryBatch does nothing and returns such names as fresh.
func (e *engine) tryBatch(
	ctx context.Context, ops []protocol.Op, ask bool,
) (results []protocol.Result, fresh []string, err error) {
	var names []string
	for _, op := range ops {
		names = append(names, op.On())
	}
	slices.Sort(names)
	names = slices.Compact(names)
	err = e.transactWith(ctx, func(db mysqldb.DBTX) ([]string, error) {
		q := mysqldb.New(db)
		results = make([]protocol.Result, len(ops))
		rows, now, err := lockRows(ctx, q, names)
		if err != nil {
			return nil, err
		}
		if ask {
			if fresh, err = missing(ctx, q, ops, rows); err != nil || len(fresh) > 0 {
				return nil, err
			}
		}
		var takes []taken
		var whole []string
		for i, op := range ops {
			row, locked := rows[op.On()]
			if !locked {
				continue
			}
			done := false
			switch op := op.(type) {
			case protocol.Take:
				if done = op.Members <= 1 && rowOf(op.Name, row).Free(0, 0, now); done {
					t := takenBy(op.Request, row, now)
					takes = append(takes, t)
					results[i].Grant = protocol.Grant{First: t.Token, Token: t.Token, Lease: op.Lease}
				}
			case protocol.Removal:
				switch {
				case row.Waiters > 0 || op.Cause != protocol.ByHolder || op.Guarded:
				case op.Shared:
					if done, err = returnShare(ctx, q, op.Held(), row); err != nil {
						return nil, err
					}
				default:
					if done = row.SessionID == op.Session && row.LastToken == op.Token; done {
						whole = append(whole, op.Name)
					}
				}
			}
			if done {
				results[i].Outcome = protocol.Done
			}
		}
		return nil, writeBatch(ctx, db, takes, whole, now)
	})
	if err != nil {
		return nil, nil, err
	}
	return results, fresh, nil
}

// writeBatch writes the rows of the taken names, and of the names released as a whole.
func writeBatch(ctx context.Context, db mysqldb.DBTX, takes []taken, whole []string, now int64) error {
	if len(takes) > 0 {
		result, err := db.ExecContext(ctx, takeRows, ascii(takes), now)
		if err != nil {
			return err
		}
		took, err := result.RowsAffected()
		if err := did(took, err, len(takes)); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(whole, maxList) {
		freed, err := mysqldb.New(db).FreeLocks(ctx, pad(some))
		if err := did(freed, err, len(some)); err != nil {
			return err
		}
	}
	return nil
}

// missing returns the names to be taken that have no row. A name outside of rows may have a row
// that another transaction has locked.
func missing(
	ctx context.Context, q *mysqldb.Queries, ops []protocol.Op, rows map[string]mysqldb.LockRowRow,
) ([]string, error) {
	var names []string
	for _, op := range ops {
		if take, takes := op.(protocol.Take); takes {
			if _, locked := rows[take.Name]; !locked {
				names = append(names, take.Name)
			}
		}
	}
	there := make(map[string]bool)
	for some := range chunks(names) {
		found, err := q.RowsExist(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			there[name] = true
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return there[name] }), nil
}

// takenBy returns the row of a free name after a request has taken it.
func takenBy(r protocol.Request, row mysqldb.LockRowRow, now int64) taken {
	t := taken{
		Name: hex.EncodeToString([]byte(r.Name)), Session: r.Session, Host: r.Host, Thread: r.Thread,
		Attempt: r.Attempt,
		Token:   max(row.Token+1, now), Rests: row.RestsUntil, Metadata: plainJSON(r.Metadata),
	}
	if r.Lease > 0 {
		ends := now + r.Lease.Microseconds()
		t.Ends = &ends
	}
	if r.MinHold > 0 {
		t.Rests = now + r.MinHold.Microseconds()
	}
	return t
}

func (e *engine) makeRows(ctx context.Context, names []string) error {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = hex.EncodeToString([]byte(name))
	}
	return e.transactWith(ctx, func(db mysqldb.DBTX) ([]string, error) {
		_, err := db.ExecContext(ctx, makeRows, ascii(list))
		return nil, err
	})
}

// ascii encodes a list as JSON in ASCII.
func ascii(list any) string {
	text, err := json.Marshal(list)
	if err != nil { // strings and numbers cannot fail
		panic(err)
	}
	return plainJSON(string(text))
}

// lockRows locks the existing rows that no other transaction has locked. now is a time before the
// locks.
func lockRows(
	ctx context.Context, q *mysqldb.Queries, names []string,
) (locked map[string]mysqldb.LockRowRow, now int64, err error) {
	locked = make(map[string]mysqldb.LockRowRow, len(names))
	for some := range chunks(names) {
		rows, err := q.LockRows(ctx, some)
		if err != nil {
			return nil, 0, err
		}
		for _, row := range rows {
			now = row.NowUs
			locked[row.Name] = mysqldb.LockRowRow{
				SessionID: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Token: row.Token,
				FirstToken: row.FirstToken, LastToken: row.LastToken, ExpiresAt: row.ExpiresAt,
				Waiters: row.Waiters, SharedUnits: row.SharedUnits, Capacity: row.Capacity, Mixed: row.Mixed,
				RestsUntil: row.RestsUntil,
			}
		}
	}
	return locked, now, nil
}
