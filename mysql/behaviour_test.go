package mysql_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/contracts"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/oracle"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/suite"
	"github.com/dblock-go/dblock/internal/testing/swallow"
	"github.com/dblock-go/dblock/mysql"
)

func onTables(db *sql.DB) dblock.Engine[*sql.Tx] { return mysql.New(db) }

func TestBehaviour(t *testing.T) {
	for _, w := range []suite.Wiring{
		{Name: "MySQL", Kind: suite.MySQL, Reach: suite.EachServer,
			Settings: suite.MySQLSettings, ReadOnly: suite.MySQLReadOnly},
		{Name: "MariaDB", Kind: suite.MariaDB, Reach: suite.EachServer,
			Settings: suite.MariaDBSettings, ReadOnly: suite.MariaDBReadOnly},
		{Name: "TiDB", Kind: suite.TiDB, Settings: suite.TiDBSettings},
		{Name: "Vitess", Kind: suite.Vitess, Settings: suite.VitessSettings},
	} {
		w.Open, w.ByView = suite.OnSQL(onTables), mysql.ByView
		suite.Run(t, w)
	}
}

func TestContracts(t *testing.T) {
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB, dbtest.KindTiDB, dbtest.KindVitess} {
		t.Run(kind, func(t *testing.T) {
			contracts.Run(t, kind,
				func(t testing.TB, db dbtest.Database) driver.Backend {
					return inside.Of(mysql.New(db.SQL(t))).Backend
				})
		})
	}
}

func TestNamedBehaviour(t *testing.T) {
	for name, kind := range map[string]string{"MySQL": suite.MySQL, "MariaDB": suite.MariaDB} {
		suite.RunOwn(t, suite.OwnWiring{Name: name, Kind: kind,
			Open: func(t testing.TB, db dbtest.Database) (suite.OwnLocks, func(), error) {
				pool := db.SQL(t)
				pool.SetMaxOpenConns(6)
				c, err := mysql.Named(pool)
				return c, func() { _ = pool.Close() }, err
			}})
	}
}

// The engine leaves the rows that package protocol leaves in memory, by the short ways and by the
// general way.
func TestTheEngineDoesWhatTheProtocolDoes(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.attending(t)
		for seed := range uint64(2) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) { oracle.Compare(t, oracle.WakesOnly{Backend: a}, seed, 100) })
		}
	})
}

// A statement that the server answers without having done anything costs a try, whichever it is:
// nothing is done by halves, and nothing is believed that was not read.
func TestAStatementThatDidNothingIsNotBelieved(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		config, err := sqldriver.ParseDSN(s.DSN)
		require.NoError(t, err)
		connector, err := sqldriver.NewConnector(config)
		require.NoError(t, err)
		var statements swallow.Statements
		pool := statements.Pool(connector)
		t.Cleanup(func() { _ = pool.Close() })
		e := inside.Of(mysql.New(pool)).Backend
		t.Cleanup(e.Attend("test", ttl))
		mysql.Patient(e, func() {}) // a ROLLBACK may take long on a busy machine
		swallowing := &oracle.Swallowing{Engine: e, Statements: &statements, Unproven: driver.ErrRetry,
			Count: map[string]int{}, Spare: func(text string) bool {
				// a batch passes over what it does not see
				return strings.Contains(text, "-- name: LockRows ") || strings.Contains(text, "-- name: RowsExist ")
			}}
		swallowing.Compare(t, soak(1, 20), 100,
			"WriteRow", "PutShare", "DropShare", "AddWaiter", "DropWaiter", "NextWaiters", "Shares",
			"PutShares", "DropShares", "PutPlaces", "DropPlaces", "SharesWith",
			"AddEvent", "TakeRows", "FreeLocks", "OpenSession", "OpenHeartbeat", "EndSession", "DropHeartbeat")
	})
}
