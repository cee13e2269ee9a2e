package mysql

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// listSizes are the lengths of list that are sent, filled up with the last element: each length is
// a statement of its own to the server.
var listSizes = []int{1, 8, 64, maxList}

const maxList = 512

func (e *engine) Look(ctx context.Context, session string, names []string) (states []driver.State, err error) {
	err = e.read(ctx, func(q *mysqldb.Queries) (err error) {
		states, err = look(ctx, q, session, names)
		return err
	})
	return states, mysqlserver.Interpret(err)
}

// look asks again for names that the short statement does not tell all of: they are as the second
// one says.
func look(ctx context.Context, q *mysqldb.Queries, session string, names []string) ([]driver.State, error) {
	states := make([]driver.State, 0, len(names))
	var shared []string
	for part := range chunks(names) {
		rows, err := q.Look(ctx, mysqldb.LookParams{Session: session, Names: part})
		if err != nil {
			return nil, err
		}
		index := make(map[string]int, len(rows)) // where in states a name stands; -1: in shared
		for _, row := range rows {
			i, seen := index[row.Name]
			switch {
			case !seen && row.SessionID == "" && (row.SharedUnits > 0 || row.Waiters > 0):
				i, shared = -1, append(shared, row.Name)
			case !seen:
				i, states = len(states), append(states, state(row, session))
			}
			if index[row.Name] = i; i >= 0 && row.Queued.Valid {
				states[i].Queued = append(states[i].Queued, row.Queued.String)
			}
		}
	}
	for part := range chunks(shared) {
		rows, err := q.LookShared(ctx, mysqldb.LookSharedParams{Session: session, Names: part})
		if err != nil {
			return nil, err
		}
		states = append(states, assemble(rows, session)...)
	}
	for _, s := range states {
		slices.SortFunc(s.Granted, func(a, b driver.OwnGrant) int { return cmp.Compare(a.Grant.Token, b.Grant.Token) })
	}
	return states, nil
}

// chunks cuts a list into lists of listSizes.
func chunks[T any](list []T) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for part := range slices.Chunk(list, maxList) {
			if !yield(pad(part)) {
				return
			}
		}
	}
}

func pad[T any](list []T) []T {
	i, _ := slices.BinarySearch(listSizes, len(list))
	padded := make([]T, 0, listSizes[i])
	padded = append(padded, list...)
	for len(padded) < listSizes[i] {
		padded = append(padded, list[len(list)-1])
	}
	return padded
}

// read runs statements that only read and of which each sees one snapshot. Where the application
// reads uncommitted data, a grant that is taken back would be seen: then it is a transaction, which
// costs three round trips more.
func (e *engine) read(ctx context.Context, work func(q *mysqldb.Queries) error) error {
	if e.reads.Load() == unknown {
		if err := e.learn(ctx, e.db); err != nil {
			return err
		}
	}
	if e.reads.Load() == committed {
		return work(e.queries())
	}
	return e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) { return nil, work(q) })
}

// learn asks a connection for the application's isolation level. MySQL and MariaDB call it
// differently.
func (e *engine) learn(ctx context.Context, on querier) error {
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
func variable(ctx context.Context, on querier, name, alias string) (string, error) {
	var value string
	err := on.QueryRowContext(ctx, "SHOW SESSION VARIABLES WHERE Variable_name IN ('"+name+"', '"+alias+"')").Scan(&name, &value)
	_, err = found(err)
	return value, err
}
