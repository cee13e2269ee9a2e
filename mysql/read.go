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

// listSizes are the lengths of the lists that are sent. A list is padded with its last element,
// because each length is a separate statement to the server.
var listSizes = []int{1, 8, 64, maxList}

const maxList = 512

// Read reads a queue of at most waiters places together with its name. Of a longer queue, it reads
// the places behind the first in a second statement, a moment later.
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

// chunks cuts a list into padded lists of listSizes.
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

// read runs statements that only read, each of which sees one snapshot. If the application reads
// uncommitted data, such a statement could see a grant that is rolled back: read then uses a
// transaction, for three more round trips.
func (e *engine) read(ctx context.Context, work func(q *mysqldb.Queries) error) error {
	if e.reads.Load() == unknown {
		if err := e.learn(ctx, e.db); err != nil {
			return err
		}
	}
	if e.reads.Load() == committed {
		return e.lone(ctx, work)
	}
	return e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) { return nil, work(q) })
}

// learn reads the application's isolation level from a connection. MySQL and MariaDB name the
// variable differently.
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

// variable returns a variable of the connection, or "" if the server knows neither name.
func variable(ctx context.Context, on querier, name, alias string) (string, error) {
	var value string
	err := on.QueryRowContext(ctx, "SHOW SESSION VARIABLES WHERE Variable_name IN ('"+name+"', '"+alias+
		"')").Scan(&name, &value)
	_, err = found(err)
	return value, err
}
