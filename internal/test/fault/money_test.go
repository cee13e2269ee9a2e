//go:build unix

package fault

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/session"
)

// schemesOf are the ways to move money that an engine has.
func schemesOf(kind string) []string {
	schemes := []string{schemeLockTx, schemeGuard, schemeOptimistic}
	switch kind {
	case dbtest.KindPostgres:
		return append(schemes, schemeAdvisory, schemeSession)
	case dbtest.KindMySQL, dbtest.KindMariaDB:
		return append(schemes, schemeSession)
	}
	return schemes
}

var ownServer = map[string]func(testing.TB) *dbtest.Server{
	dbtest.KindPostgres: dbtest.OwnPostgres, dbtest.KindMariaDB: dbtest.OwnMariaDB, dbtest.KindMySQL: dbtest.OwnMySQL,
}

// MySQL's server takes so long to make that the sample does without killing it: MariaDB's engine is
// the same.
//
// The sample has one worker of each scheme in each process, so that all of them meet the same
// faults in the same time. On demand each scheme has the processes for itself as well.
func TestMoney(t *testing.T) {
	length := lengthOf(t, "DBLOCK_TEST_MONEY", 0) // 0: one round of faults
	if length == 0 {
		t.Run("the books show seeded bugs", theBooksShowSeededBugs) // beside the rest, which waits a lot
	}
	for _, kind := range dbtest.Kinds {
		t.Run(kind, func(t *testing.T) {
			if length == 0 {
				t.Parallel()
			}
			all := map[string]int{}
			runs := map[string]map[string]int{"all": all}
			for _, scheme := range schemesOf(kind) {
				all[scheme] = 1
				if length > 0 {
					runs[scheme] = map[string]int{scheme: 2}
				}
			}
			database := func(t *testing.T) (dbtest.Database, func()) { return dbtest.SQLite(t), nil }
			if own := ownServer[kind]; length == 0 && kind == dbtest.KindMySQL {
				database = func(t *testing.T) (dbtest.Database, func()) { return dbtest.MySQL(t), nil }
			} else if own != nil {
				server := own(t)
				database = func(t *testing.T) (dbtest.Database, func()) {
					return server.Database(t), func() { server.Kill(); server.Start() }
				}
			}
			for name, schemes := range runs {
				t.Run(name, func(t *testing.T) {
					db, restart := database(t)
					b := newBank(newWorld(t, db), seed(t), schemes, "")
					b.restart = restart
					b.run(length)
					for checker, texts := range b.found {
						t.Errorf("%s: %d, first: %s", checker, len(texts), texts[0])
					}
				})
			}
		})
	}
}

// run lets a bank work under faults, and reads the books afterwards.
func (b *bank) run(length time.Duration) {
	b.Helper()
	stop := b.watch()
	b.goesOn()
	for end := session.Boottime() + length; ; {
		b.torment()
		if session.Boottime() >= end {
			break
		}
	}
	b.close()
	died := session.Boottime()
	stop()
	b.nothingIsStuck(died)
	b.check()
}
