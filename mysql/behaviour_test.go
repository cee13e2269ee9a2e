package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/enginetest"
	"github.com/dblock-go/dblock/mysql"
)

func onTables(db *sql.DB) driver.Engine[*sql.Tx] { return mysql.New(db) }

func TestBehaviour(t *testing.T) {
	enginetest.Run(t, enginetest.Wiring{
		Name: "MySQL", Kind: enginetest.MySQL, Open: enginetest.OnSQL(onTables), ByView: mysql.ByView,
		Settings: enginetest.MySQLSettings, ReadOnly: enginetest.MySQLReadOnly,
	})
	enginetest.Run(t, enginetest.Wiring{
		Name: "MariaDB", Kind: enginetest.MariaDB, Open: enginetest.OnSQL(onTables), ByView: mysql.ByView,
		Settings: enginetest.MariaDBSettings, ReadOnly: enginetest.MariaDBReadOnly,
	})
}

func TestNamedBehaviour(t *testing.T) {
	for name, kind := range map[string]string{"MySQL": enginetest.MySQL, "MariaDB": enginetest.MariaDB} {
		enginetest.RunOwn(t, enginetest.OwnWiring{Name: name, Kind: kind, Open: func(t testing.TB, db dbtest.Database) (enginetest.OwnLocks, func(), error) {
			pool := db.SQL(t)
			pool.SetMaxOpenConns(6)
			c, err := mysql.Named(pool)
			return c, func() { _ = pool.Close() }, err
		}})
	}
}
