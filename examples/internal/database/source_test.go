package database

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/migrate"
)

func TestPostgresURLsGoToPgxAsTheyAre(t *testing.T) {
	for _, dsn := range []string{"postgres://u:p@h:1234/d?sslmode=disable", "postgresql://u@h/d"} {
		s, err := Parse(dsn)
		if err != nil || s.Engine != migrate.Postgres || s.DSN != dsn || !strings.Contains(s.Place,
			"database d on h port") {
			t.Errorf("Parse(%q) = %+v, %v", dsn, s, err)
		}
	}
}

func TestMySQLIsAURLOrTheDriversOwnForm(t *testing.T) {
	for dsn, want := range map[string]struct{ user, password, addr, db string }{
		"mysql://u:p@h:1234/d":                     {"u", "p", "h:1234", "d"},
		"mysql://u:p@h/d":                          {"u", "p", "h:3306", "d"},
		"mariadb://u@[::1]/d":                      {"u", "", "[::1]:3306", "d"},
		"mysql://u:p%40%3A%2F@h/d":                 {"u", "p@:/", "h:3306", "d"},
		"mysql://u:p@h/d?parseTime=true&loc=UTC":   {"u", "p", "h:3306", "d"},
		"u:p@tcp(h:1234)/d":                        {"u", "p", "h:1234", "d"},
		"u:p://@tcp(h:1234)/d?clientFoundRows=1":   {"u", "p://", "h:1234", "d"},
		"u:p@unix(/run/mysqld/mysqld.sock)/d":      {"u", "p", "/run/mysqld/mysqld.sock", "d"},
		"mysql://u:p@h/d?time_zone=%27%2B02:00%27": {"u", "p", "h:3306", "d"},
	} {
		s, err := Parse(dsn)
		if err != nil || s.Engine != migrate.MySQL {
			t.Errorf("Parse(%q) = %+v, %v", dsn, s, err)
			continue
		}
		c, err := mysql.ParseDSN(s.DSN)
		if err != nil {
			t.Errorf("Parse(%q) = %q: %v", dsn, s.DSN, err)
			continue
		}
		if c.User != want.user || c.Passwd != want.password || c.Addr != want.addr || c.DBName != want.db {
			t.Errorf("Parse(%q) = %q", dsn, s.DSN)
		}
		if strings.Contains(dsn, "parseTime") != c.ParseTime ||
			strings.Contains(dsn, "clientFoundRows") != c.ClientFoundRows {
			t.Errorf("Parse(%q) = %q: lost a parameter", dsn, s.DSN)
		}
		if strings.Contains(dsn, "time_zone") && c.Params["time_zone"] != "'+02:00'" {
			t.Errorf("Parse(%q) = %q: lost a parameter", dsn, s.DSN)
		}
	}
}

func TestABadDSNIsRefusedWithoutShowingThePassword(t *testing.T) {
	for _, dsn := range []string{
		"localhost", "file:fee.db", "sqlite:///fee.db", "postgres://u:secret%zz@h/d", "postgres://u:secret@h:port/d",
		"mysql://u:secret%zz@h/d", "mysql://u:secret@h", "mysql://u:secret@h:port/d", "u:secret@tcp(h:1)/",
		"u:secret@tcp/d?tls=no",
	} {
		s, err := Parse(dsn)
		if err == nil {
			t.Errorf("Parse(%q) = %+v", dsn, s)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("Parse(%q): %v", dsn, err)
		}
	}
}
