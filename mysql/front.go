package mysql

import (
	"context"
	"math"
	"slices"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
)

// front is the front of a queue, as one statement saw it: the members of the run that has the name,
// and the first waiter behind them with the members of the run that it begins.
type front struct {
	served  []mysqldb.NextWaitersRow
	head    *mysqldb.NextWaitersRow // nil: nobody
	members []mysqldb.NextWaitersRow
	more    bool  // there are waiters behind all of these
	gone    int64 // see NextWaiters
}

func frontOf(list []mysqldb.NextWaitersRow) (f front) {
	n := slices.IndexFunc(list, func(w mysqldb.NextWaitersRow) bool { return w.Token == 0 })
	if n < 0 {
		return f
	}
	f.served, f.head, f.gone = list[:n], &list[n], list[n].Gone
	f.members = membersOf(list[n], list[n+1:])
	f.more = len(list) > n+1+len(f.members)
	return f
}

// aFew is how many places tell the front of most queues.
const aFew = 8

func readFront(ctx context.Context, q *mysqldb.Queries, name string) (f front, err error) {
	for _, limit := range []int32{aFew, 2 * driver.MaxRun} {
		list, err := q.NextWaiters(ctx, mysqldb.NextWaitersParams{Name: name, After: math.MinInt64, Limit: limit})
		if err != nil {
			return front{}, err
		}
		if f = frontOf(list); f.more || len(list) < int(limit) {
			break
		}
	}
	return f, nil
}
