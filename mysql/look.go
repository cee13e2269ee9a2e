package mysql

import (
	"context"
	"iter"
	"slices"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
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

func look(ctx context.Context, q *mysqldb.Queries, session string, names []string) ([]driver.State, error) {
	return inspection.Look(session, names, func(names []string) (seen []inspection.Row, err error) {
		for part := range chunks(names) {
			rows, err := q.Look(ctx, mysqldb.LookParams{Session: session, Names: part})
			if rows, err = whole(rows, err, func(r mysqldb.LookRow) bool { return r.Name == "" }); err != nil {
				return nil, err
			}
			for _, row := range rows {
				seen = append(seen, inspection.Row(row))
			}
		}
		return seen, nil
	}, func(names []string) (seen []inspection.Row, err error) {
		for part := range chunks(names) {
			rows, err := q.LookShared(ctx, mysqldb.LookSharedParams{Session: session, Names: part})
			if rows, err = whole(rows, err, func(r mysqldb.LookSharedRow) bool { return r.Name == "" }); err != nil {
				return nil, err
			}
			for _, row := range rows {
				seen = append(seen, inspection.Row(row))
			}
		}
		return seen, nil
	})
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
