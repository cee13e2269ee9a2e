package mysql

import (
	"context"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// innoDB is MySQL, and what MariaDB does like MySQL.
type innoDB struct {
	common
	// take takes a free name whose row no other transaction has locked. 0: not taken.
	take func(ctx context.Context, q *mysqldb.Queries, p mysqldb.TakeLockParams) (token int64, err error)
}

var inMySQL = &innoDB{
	common{facts{
		texts: mysqldb.MySQL, resets: resetLimit, lists: true, pairs: pairsWith("FOR SHARE"),
	}},
	func(ctx context.Context, q *mysqldb.Queries, p mysqldb.TakeLockParams) (int64, error) {
		return q.TakeLock(ctx, p)
	},
}

// pairsWith returns the locks of InnoDB.
func pairsWith(share string) []pair {
	return []pair{
		{"FOR UPDATE", []string{"FOR UPDATE NOWAIT", "FOR UPDATE SKIP LOCKED", share + " NOWAIT"}},
		{share, []string{"FOR UPDATE NOWAIT"}},
	}
}

func (*innoDB) lone(_ context.Context, on runner, work func(q *mysqldb.Queries) error) error {
	return mysqlserver.Interpret(work(on.queries()))
}
