package mysql

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
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
	takeRows = `-- name: TakeRows :exec
UPDATE JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (name VARCHAR(510) PATH '$.n', session_id VARCHAR(32) PATH '$.s', host TEXT PATH '$.h',
         thread TEXT PATH '$.t', attempt VARCHAR(32) PATH '$.a', token BIGINT PATH '$.k', expires_at BIGINT PATH '$.e', rests_until BIGINT PATH '$.r',
         metadata MEDIUMTEXT PATH '$.m')) j
  STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = UNHEX(j.name)
   SET l.token = j.token, l.first_token = j.token, l.last_token = j.token, l.session_id = j.session_id, l.host = j.host, l.thread = j.thread, l.holds = 1, l.attempt = j.attempt,
       l.acquired_at = ?, l.expires_at = j.expires_at, l.rests_until = j.rests_until, l.metadata = j.metadata`
	makeRows = `-- name: MakeRows :exec
INSERT INTO dblock_locks (name, host, thread, token, acquired_at, metadata)
SELECT UNHEX(j.name), '', '', c.now_us, c.now_us, ''
  FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (name VARCHAR(510) PATH '$')) j JOIN dblock_clock c
 ORDER BY UNHEX(j.name)
ON DUPLICATE KEY UPDATE name = dblock_locks.name`
)

// Batch passes over what is locked just now. Where names are new it makes their rows, and tries
// them once more.
func (e *engine) Batch(ctx context.Context, takes []driver.Request, releases []driver.Held) (grants []driver.Grant, released []bool, err error) {
	grants, released, passed, err := e.exchange(ctx, takes, releases)
	if err != nil || len(passed) == 0 {
		return grants, released, err
	}
	made, err := e.makeRows(ctx, passed)
	if err != nil || len(made) == 0 { // those that are left out go alone
		return grants, released, nil
	}
	again := slices.DeleteFunc(slices.Clone(takes), func(r driver.Request) bool { return !made[r.Name] })
	more, _, _, err := e.exchange(ctx, again, nil)
	if err != nil {
		return nil, nil, err
	}
	for i, r := range takes {
		if made[r.Name] {
			grants[i], more = more[0], more[1:]
		}
	}
	return grants, released, nil
}

// exchange is Batch of the names that have rows. passed are the names to be taken whose rows are
// missing, or locked.
func (e *engine) exchange(ctx context.Context, takes []driver.Request, releases []driver.Held) (grants []driver.Grant, released []bool, passed []string, err error) {
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
		grants, released, passed = make([]driver.Grant, len(takes)), make([]bool, len(releases)), nil
		rows, now, err := lockRows(ctx, q, names)
		if err != nil {
			return nil, err
		}
		var list []taken
		for i, r := range takes {
			switch row, there := rows[r.Name]; {
			case !there:
				passed = append(passed, r.Name)
			case standing(row).Free(r) && row.RestsUntil <= now:
				t := rowOf(r, row, now)
				grants[i], list = driver.Grant{Token: t.Token, Lease: r.Lease}, append(list, t)
			}
		}
		if len(list) > 0 {
			if _, err := db.ExecContext(ctx, takeRows, ascii(list), now); err != nil {
				return nil, err
			}
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
		for some := range chunks(whole) {
			if err := q.FreeLocks(ctx, some); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return grants, released, passed, nil
}

// rowOf is a free row that was locked, once a request has taken it.
func rowOf(r driver.Request, row mysqldb.LockRowRow, now int64) taken {
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

// makeRows makes the rows that are missing of some names, in the order of the names. It returns
// those that had none.
func (e *engine) makeRows(ctx context.Context, names []string) (made map[string]bool, err error) {
	made = make(map[string]bool, len(names))
	err = e.transactWith(ctx, func(db mysqldb.DBTX) ([]string, error) {
		for _, name := range names {
			made[name] = true
		}
		for some := range chunks(names) {
			there, err := mysqldb.New(db).RowsExist(ctx, some)
			if err != nil {
				return nil, err
			}
			for _, name := range there {
				delete(made, name)
			}
		}
		var list []string
		for name := range made {
			list = append(list, hex.EncodeToString([]byte(name)))
		}
		if len(list) == 0 {
			return nil, nil
		}
		_, err := db.ExecContext(ctx, makeRows, ascii(list))
		return nil, err
	})
	return made, err
}

// ascii is a list in JSON.
func ascii(list any) string {
	text, err := json.Marshal(list)
	if err != nil { // of strings and numbers there is none
		panic(err)
	}
	return plainJSON(string(text))
}
