package mysql

import (
	"context"
	"database/sql"
	"iter"
	"slices"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
)

// listSizes are the lengths of list that are sent, filled up with the last name: each length is a statement of its own
// to the server.
var listSizes = []int{1, 8, 64, 512}

func (e *engine) Look(ctx context.Context, session string, names []string) ([]driver.State, error) {
	states := make([]driver.State, 0, len(names))
	for part := range chunks(names) {
		rows, err := e.look(ctx, mysqldb.LookParams{Session: session, Names: part})
		if err != nil {
			return nil, interpret(err)
		}
		index := make(map[string]int, len(rows)) // where in states a name stands
		for _, row := range rows {
			i, seen := index[row.Name]
			if !seen {
				i, index[row.Name] = len(states), len(states)
				states = append(states, driver.State{Name: row.Name, Holder: holder(row), Waiters: int(row.Waiters)})
			}
			if row.Queued.Valid {
				states[i].Queued = append(states[i].Queued, row.Queued.String)
			}
		}
	}
	return states, nil
}

// chunks cuts a list into lists of listSizes.
func chunks(names []string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for part := range slices.Chunk(names, listSizes[len(listSizes)-1]) {
			if !yield(pad(part)) {
				return
			}
		}
	}
}

func pad(names []string) []string {
	i, _ := slices.BinarySearch(listSizes, len(names))
	padded := make([]string, 0, listSizes[i])
	padded = append(padded, names...)
	for len(padded) < listSizes[i] {
		padded = append(padded, names[len(names)-1])
	}
	return padded
}

// look reads one snapshot. Where the application reads uncommitted data, a grant that is taken back would be seen: then
// it is a transaction, which costs three round trips more.
func (e *engine) look(ctx context.Context, p mysqldb.LookParams) (rows []mysqldb.LookRow, err error) {
	if e.reads.Load() == unknown {
		if err := e.learn(ctx, e.db); err != nil {
			return nil, err
		}
	}
	if e.reads.Load() == committed {
		return e.queries().Look(ctx, p)
	}
	err = e.transact(ctx, func(q *mysqldb.Queries) (_ string, err error) {
		rows, err = q.Look(ctx, p)
		return "", err
	})
	return rows, err
}

// learn asks a connection for the application's isolation level. MySQL and MariaDB call it differently.
func (e *engine) learn(ctx context.Context, on interface {
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}) error {
	level, err := variable(ctx, on, "transaction_isolation", "tx_isolation")
	if err != nil {
		return err
	}
	if level == "READ-UNCOMMITTED" {
		e.reads.Store(dirty)
	} else {
		e.reads.Store(committed)
	}
	return nil
}

// variable is a variable of the connection, "" where the server has none of these names.
func variable(ctx context.Context, on interface {
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}, name, alias string) (string, error) {
	var value string
	err := on.QueryRowContext(ctx, "SHOW SESSION VARIABLES WHERE Variable_name IN ('"+name+"', '"+alias+"')").Scan(&name, &value)
	_, err = found(err)
	return value, err
}

func holder(row mysqldb.LookRow) driver.Holder {
	if row.SessionID == "" {
		return driver.Holder{}
	}
	h := driver.Holder{
		Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
		Grant: driver.Grant{Token: row.Token, Contended: row.Waiters > 0},
		Since: time.UnixMicro(row.AcquiredAt), Left: microseconds(row.SessionExpiresAt - row.NowUs),
	}
	if row.ExpiresAt.Valid {
		h = h.WithFixedLease(microseconds(row.ExpiresAt.Int64 - row.NowUs))
	}
	return h
}
