package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/contracts"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/suite"
	"github.com/dblock-go/dblock/mysql"
)

func onTables(db *sql.DB) driver.Engine[*sql.Tx] { return mysql.New(db) }

func TestBehaviour(t *testing.T) {
	suite.Run(t, suite.Wiring{
		Name: "MySQL", Kind: suite.MySQL, Reach: suite.EachServer,
		Open: suite.OnSQL(onTables), ByView: mysql.ByView,
		Settings: suite.MySQLSettings, ReadOnly: suite.MySQLReadOnly,
	})
	suite.Run(t, suite.Wiring{
		Name: "MariaDB", Kind: suite.MariaDB, Reach: suite.EachServer,
		Open: suite.OnSQL(onTables), ByView: mysql.ByView,
		Settings: suite.MariaDBSettings, ReadOnly: suite.MariaDBReadOnly,
	})
	suite.Run(t, suite.Wiring{
		Name: "TiDB", Kind: suite.TiDB, Open: suite.OnSQL(onTables), ByView: mysql.ByView,
		Settings: suite.TiDBSettings,
	})
	suite.Run(t, suite.Wiring{
		Name: "Vitess", Kind: suite.Vitess, Open: suite.OnSQL(onTables), ByView: mysql.ByView,
		Settings: suite.VitessSettings,
	})
}

func TestContracts(t *testing.T) {
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB, dbtest.KindTiDB, dbtest.KindVitess} {
		t.Run(kind, func(t *testing.T) {
			contracts.Run(t, kind,
				func(t testing.TB, db dbtest.Database) driver.Backend { return mysql.New(db.SQL(t)).Backend })
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
