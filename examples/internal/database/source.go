package database

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/migrate"
)

// Source is a database that can be opened.
type Source struct {
	Engine migrate.Engine
	DSN    string // as the engine's driver wants it
	Place  string // for people; without the password
}

// Parse understands postgres://, mysql:// and mariadb:// URLs, and go-sql-driver's own
// user:pass@tcp(host:port)/db.
func Parse(dsn string) (Source, error) {
	switch scheme, _, _ := strings.Cut(dsn, "://"); scheme {
	case "postgres", "postgresql":
		c, err := pgx.ParseConfig(dsn)
		if err != nil {
			return Source{}, fmt.Errorf("-dsn: %w", err) // pgx leaves the password out
		}
		return Source{migrate.Postgres, dsn, fmt.Sprintf("PostgreSQL, database %s on %s port %d", c.Database, c.Host,
			c.Port)}, nil
	case "mysql", "mariadb":
		native, err := nativeMySQL(dsn)
		if err != nil {
			return Source{}, fmt.Errorf("-dsn: %w", err)
		}
		dsn = native
	}
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return Source{}, fmt.Errorf("-dsn: want postgres://user:pass@host:port/db, mysql://user:pass@host:port/db "+
			"or user:pass@tcp(host:port)/db: %w", err)
	}
	if c.DBName == "" {
		return Source{}, errors.New("-dsn: it names no database: …/db")
	}
	return Source{migrate.MySQL, dsn, fmt.Sprintf("MySQL or MariaDB, database %s on %s", c.DBName, c.Addr)}, nil
}

// nativeMySQL turns a URL into the form of go-sql-driver, with the same parameters.
func nativeMySQL(dsn string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		var withURL *url.Error // it would show the password
		if errors.As(err, &withURL) {
			err = withURL.Err
		}
		return "", err
	}
	c := mysql.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr = "tcp", u.Host
	if u.Port() == "" {
		c.Addr = strings.TrimSuffix(u.Host, ":") + ":3306"
	}
	c.DBName = strings.TrimPrefix(u.Path, "/")
	native := c.FormatDSN()
	if u.RawQuery != "" {
		separator := "?"
		if strings.Contains(native[strings.LastIndex(native, "/"):], "?") {
			separator = "&"
		}
		native += separator + u.RawQuery
	}
	return native, nil
}
