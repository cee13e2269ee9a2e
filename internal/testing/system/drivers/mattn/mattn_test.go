// Package mattn runs the behaviour suite with mattn/go-sqlite3, which is SQLite's own C.
package mattn

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/mattn/go-sqlite3"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/suite"
	"github.com/dblock-go/dblock/sqlite"
)

func TestMain(m *testing.M) {
	dbtest.SQLiteDriver = "pragmatic"
	sql.Register(dbtest.SQLiteDriver, &pragmatic{})
	os.Exit(dbtest.Run(m))
}

func TestBehaviour(t *testing.T) {
	suite.Run(t, suite.Wiring{
		Name: "mattn", Kind: suite.SQLite, Open: suite.OnSQL(sqlite.New),
		Usual:    &suite.SQLiteUsual,
		Settings: suite.SQLiteSettings, ReadOnly: suite.SQLiteReadOnly,
	})
}

// pragmatic is the driver with the pragmas of a DSN as the other drivers take them.
type pragmatic struct{ sqlite3.SQLiteDriver }

func (d *pragmatic) Open(dsn string) (driver.Conn, error) {
	base, query, _ := strings.Cut(dsn, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	pragmas := values["_pragma"]
	values.Del("_pragma")
	conn, err := d.SQLiteDriver.Open(base + "?" + values.Encode())
	if err != nil {
		return nil, err
	}
	c := conn.(*sqlite3.SQLiteConn)
	if err := c.RegisterFunc(suite.SQLiteAheadName, suite.SQLiteAhead, false); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	for _, pragma := range pragmas {
		if _, err := c.Exec("PRAGMA "+pragma, nil); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}
