package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/migrate"
)

// source is a database named by flags or environment.
type source struct {
	engine   migrate.Engine
	postgres *pgx.ConnConfig
	mysql    *mysql.Config
	file     string // of SQLite
	local    bool   // the file is this user's own, and made if missing
}

var errNoDatabase = errors.New("no database: give --dsn or DBLOCK_DSN, or --local for locks on this machine")

// sourceOf returns the database that flags and environment name, with the schema from --schema.
func sourceOf(o *options, getenv func(string) string) (source, error) {
	s, err := given(o, getenv)
	switch {
	case err != nil || o.schema == "":
	case s.postgres != nil:
		s.postgres.RuntimeParams["search_path"] = pgx.Identifier{o.schema}.Sanitize()
	case s.mysql != nil:
		s.mysql.DBName = o.schema
	default:
		err = usageError{errors.New("--schema: SQLite has none")}
	}
	return s, err
}

// given finds the database that flags and environment name. The first of --local, --dsn, DBLOCK_DSN
// and PG environment variables counts.
func given(o *options, getenv func(string) string) (source, error) {
	switch {
	case o.local && o.dsn != "":
		return source{}, usageError{errors.New("--local and --dsn: give one of them")}
	case o.local:
		file, err := localFile(getenv)
		return source{engine: migrate.SQLite, file: file, local: true}, err
	case o.dsn != "":
		if tellsPassword(o.dsn) {
			return source{}, usageError{errors.New("--dsn has a password, which lists of processes show: give it in " +
				"DBLOCK_DSN, PGPASSWORD, ~/.pgpass or ~/.my.cnf")}
		}
		return parse(o.dsn, getenv)
	case getenv("DBLOCK_DSN") != "":
		return parse(getenv("DBLOCK_DSN"), getenv)
	case getenv("PGHOST") != "" || getenv("PGSERVICE") != "" || getenv("PGDATABASE") != "":
		return parse("postgres://", getenv)
	}
	return source{}, usageError{errNoDatabase}
}

// tellsPassword reports whether a data source contains a password.
func tellsPassword(dsn string) bool {
	if strings.Contains(dsn, "://") {
		u, err := url.Parse(dsn)
		if err != nil {
			return strings.Contains(dsn, "@") // parse reports the error; it may contain a password
		}
		_, has := u.User.Password()
		return has || u.Query().Has("password")
	}
	config, err := mysql.ParseDSN(dsn)
	return err == nil && config.Passwd != ""
}

// parse reads a data source. Its errors do not repeat it, since it may contain a password.
func parse(dsn string, getenv func(string) string) (source, error) {
	scheme, rest, isURL := strings.Cut(dsn, "://")
	switch {
	case isURL && (scheme == "postgres" || scheme == "postgresql"):
		// pool_max_conns and similar are for the application's pool
		config, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			return source{}, usageError{fmt.Errorf("the data source is no postgres:// URL: %w", withoutURL(err))}
		}
		return source{engine: migrate.Postgres, postgres: config.ConnConfig}, nil
	case isURL && scheme == "mysql":
		config, err := mysqlURL(dsn)
		if err != nil {
			return source{}, usageError{fmt.Errorf("the data source is no mysql:// URL: %w", withoutURL(err))}
		}
		return source{engine: migrate.MySQL, mysql: config}, completeMySQL(config, getenv)
	case isURL && scheme == "sqlite":
		if rest == "" {
			return source{}, usageError{errors.New("sqlite:// without a path")}
		}
		return source{engine: migrate.SQLite, file: rest}, nil
	case isURL && !strings.Contains(scheme, "("):
		return source{},
			usageError{fmt.Errorf("the data source begins with %q: want postgres://, mysql:// or sqlite://",
				scheme+"://")}
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return source{}, usageError{errors.New("the data source is none that is known: want postgres://, mysql://, " +
			"sqlite://, or user@tcp(host:3306)/database")}
	}
	return source{engine: migrate.MySQL, mysql: config}, completeMySQL(config, getenv)
}

// withoutURL returns the error of parsing a URL, without the URL.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// mysqlURL reads mysql://user:password@host:port/database?parameters. The parameters are those of
// the driver. socket=PATH names a Unix socket.
func mysqlURL(text string) (*mysql.Config, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	database := strings.TrimPrefix(u.Path, "/")
	address := ""
	parameters := u.Query()
	if socket := parameters.Get("socket"); socket != "" {
		parameters.Del("socket")
		address = "unix(" + socket + ")"
	} else if u.Host != "" {
		port := u.Port()
		if port == "" {
			port = "3306"
		}
		address = "tcp(" + net.JoinHostPort(u.Hostname(), port) + ")"
	}
	config, err := mysql.ParseDSN(address + "/" + url.PathEscape(database) + "?" + parameters.Encode())
	if err != nil {
		return nil, errors.New("parameters that the driver does not know")
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	return config, nil
}

// localFile returns the file of --local, in the system's folder for the state of programs.
func localFile(getenv func(string) string) (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("--local: %w", err)
	}
	folder := filepath.Join(home, ".local", "state")
	switch state := getenv("XDG_STATE_HOME"); {
	case filepath.IsAbs(state):
		folder = state
	case runtime.GOOS == "darwin":
		folder = filepath.Join(home, "Library", "Application Support")
	case runtime.GOOS == "windows":
		if folder, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("--local: %w", err)
		}
	}
	return filepath.Join(folder, "dblock", "locks.db"), nil
}

// String describes the source without its secrets.
func (s source) String() string {
	switch {
	case s.postgres != nil:
		return fmt.Sprintf("PostgreSQL database %q of %s:%d", s.postgres.Database, s.postgres.Host, s.postgres.Port)
	case s.mysql != nil:
		return fmt.Sprintf("MySQL database %q of %s", s.mysql.DBName, s.mysql.Addr)
	}
	return "SQLite file " + s.file
}
