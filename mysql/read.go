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

// Read reads a queue of at most so many waiters together with the name. Of a longer queue it reads
// the places behind the first in a statement of its own, a moment later.
func (e *engine) Read(
	ctx context.Context, session string, names []string, waiters int,
) (states []driver.State, err error) {
	err = e.read(ctx, func(q *mysqldb.Queries) (err error) {
		states, err = read(ctx, q, session, names, waiters)
		return err
	})
	return states, mysqlserver.Interpret(err)
}

func read(
	ctx context.Context, q *mysqldb.Queries, session string, names []string, waiters int,
) ([]driver.State, error) {
	return inspection.Read(session, names, waiters, func(names []string) (seen []inspection.Row, err error) {
		for part := range chunks(names) {
			rows, err := q.Read(ctx, mysqldb.ReadParams{Session: session, Names: part})
			if rows, err = whole(rows, err, func(r mysqldb.ReadRow) bool { return r.Name == "" }); err != nil {
				return nil, err
			}
			for _, row := range rows {
				seen = append(seen, inspection.Row(row))
			}
		}
		return seen, nil
	}, func(names []string, places int) (seen []inspection.Row, err error) {
		for part := range chunks(names) {
			rows, err := q.ReadAll(ctx, mysqldb.ReadAllParams{Session: session, Names: part, Most: int64(waiters)})
			if rows, err = whole(rows, err, func(r mysqldb.ReadAllRow) bool { return r.Name == "" }); err != nil {
				return nil, err
			}
			for _, row := range rows {
				seen = append(seen, inspection.Row(row))
				if row.Part != inspection.Place || row.Waiters == 0 || places == 1 {
					continue
				}
				behind, err := q.NextPlaces(ctx, mysqldb.NextPlacesParams{
					Name: row.Name, After: row.Place, Limit: count(places - 1),
				})
				if err != nil {
					return nil, err
				}
				for _, place := range behind {
					seen = append(seen, inspection.Row(place))
				}
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
	err := on.QueryRowContext(ctx, "SHOW SESSION VARIABLES WHERE Variable_name IN ('"+name+"', '"+alias+
		"')").Scan(&name, &value)
	_, err = found(err)
	return value, err
}
