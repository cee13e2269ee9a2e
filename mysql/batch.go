package mysql

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// taken is what a batch writes into the row of a name that it takes.
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

// TakeRows and MakeRows are TakeLock, after LockRows, and MakeRow, of many names in one statement.
// sqlc does not know JSON_TABLE. The list is ASCII, whatever the connection's character set.
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

// batch passes over what is locked just now. Where names are new it makes their rows first, and
// then takes and releases in a single transaction: its error is that of all results.
func (e *engine) batch(ctx context.Context, ops []protocol.Op) ([]protocol.Result, error) {
	var takes []driver.Request
	var releases []driver.Held
	for _, op := range ops {
		switch op := op.(type) {
		case protocol.Take:
			takes = append(takes, op.Request)
		case protocol.Removal:
			if op.Cause == driver.ByHolder && !op.Guarded {
				releases = append(releases, op.Held())
			}
		}
	}
	grants, released, fresh, err := e.tryBatch(ctx, takes, releases, true)
	if err == nil && len(fresh) > 0 {
		_ = e.makeRows(ctx, fresh) // names that are still new go alone
		grants, released, _, err = e.tryBatch(ctx, takes, releases, false)
	}
	if err != nil {
		return nil, err
	}
	results := make([]protocol.Result, len(ops))
	for i, op := range ops {
		done := false
		switch op := op.(type) {
		case protocol.Take:
			results[i].Grant, grants = grants[0], grants[1:]
			done = results[i].Grant.Token != 0
		case protocol.Removal:
			if op.Cause == driver.ByHolder && !op.Guarded {
				done, released = released[0], released[1:]
			}
		}
		if done {
			results[i].Outcome = protocol.Done
		}
	}
	return results, nil
}

// tryBatch is batch of the names that have rows. With ask it does nothing where there are names to
// be taken that have none, and returns them: fresh.
func (e *engine) tryBatch(ctx context.Context, takes []driver.Request, releases []driver.Held, ask bool) (grants []driver.Grant, released []bool, fresh []string, err error) {
	names := make([]string, 0, len(takes)+len(releases))
	for _, r := range takes {
		names = append(names, r.Name)
	}
	for _, h := range releases {
		names = append(names, h.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	err = e.transactWith(ctx, func(db mysqldb.DBTX) ([]string, error) {
		q := mysqldb.New(db)
		released = make([]bool, len(releases))
		rows, now, err := lockRows(ctx, q, names)
		if err != nil {
			return nil, err
		}
		if ask {
			if fresh, err = missing(ctx, q, takes, rows); err != nil || len(fresh) > 0 {
				return nil, err
			}
		}
		if grants, err = takeListed(ctx, db, takes, rows, now); err != nil {
			return nil, err
		}
		var whole []string
		for i, h := range releases {
			switch row, there := rows[h.Name]; {
			case !there || row.Waiters > 0:
			case h.Shared:
				if released[i], err = returnShare(ctx, q, h, row); err != nil {
					return nil, err
				}
			default:
				if released[i] = row.SessionID == h.Session && row.LastToken == h.Token; released[i] {
					whole = append(whole, h.Name)
				}
			}
		}
		for some := range slices.Chunk(whole, maxList) {
			freed, err := q.FreeLocks(ctx, pad(some))
			if err := did(freed, err, len(some)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return grants, released, fresh, nil
}

// missing are the names to be taken that have no row. The row of a name that is not among the
// locked ones may be locked by another.
func missing(ctx context.Context, q *mysqldb.Queries, takes []driver.Request, rows map[string]mysqldb.LockRowRow) ([]string, error) {
	var names []string
	for _, r := range takes {
		if _, locked := rows[r.Name]; !locked {
			names = append(names, r.Name)
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

// takeListed takes the names that are free of those whose rows are locked.
func takeListed(ctx context.Context, db mysqldb.DBTX, takes []driver.Request, rows map[string]mysqldb.LockRowRow, now int64) ([]driver.Grant, error) {
	grants := make([]driver.Grant, len(takes))
	var list []taken
	for i, r := range takes {
		if row, locked := rows[r.Name]; locked && r.Members <= 1 && free(rowOf(r.Name, row)) && row.RestsUntil <= now {
			t := takenBy(r, row, now)
			grants[i], list = driver.Grant{First: t.Token, Token: t.Token, Lease: r.Lease}, append(list, t)
		}
	}
	if len(list) == 0 {
		return grants, nil
	}
	result, err := db.ExecContext(ctx, takeRows, ascii(list), now)
	if err != nil {
		return nil, err
	}
	took, err := result.RowsAffected()
	return grants, did(took, err, len(list))
}

// takenBy is a free row that was locked, once a request has taken it.
func takenBy(r driver.Request, row mysqldb.LockRowRow, now int64) taken {
	t := taken{
		Name: hex.EncodeToString([]byte(r.Name)), Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Token: max(row.Token+1, now), Rests: row.RestsUntil, Metadata: plainJSON(r.Metadata),
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

// makeRows makes rows of names.
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

// ascii is a list in JSON.
func ascii(list any) string {
	text, err := json.Marshal(list)
	if err != nil { // of strings and numbers there is none
		panic(err)
	}
	return plainJSON(string(text))
}

// lockRows locks those rows that are there and that nobody else has locked. now is a time before
// that.
func lockRows(ctx context.Context, q *mysqldb.Queries, names []string) (locked map[string]mysqldb.LockRowRow, now int64, err error) {
	locked = make(map[string]mysqldb.LockRowRow, len(names))
	for some := range chunks(names) {
		rows, err := q.LockRows(ctx, some)
		if err != nil {
			return nil, 0, err
		}
		for _, row := range rows {
			now = row.NowUs
			locked[row.Name] = mysqldb.LockRowRow{
				SessionID: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Token: row.Token, FirstToken: row.FirstToken, LastToken: row.LastToken, ExpiresAt: row.ExpiresAt,
				Waiters: row.Waiters, SharedUnits: row.SharedUnits, Capacity: row.Capacity, Mixed: row.Mixed, RestsUntil: row.RestsUntil,
			}
		}
	}
	return locked, now, nil
}
