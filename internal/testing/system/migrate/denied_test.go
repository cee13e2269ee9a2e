package migrate

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

func TestAUserWithoutTheRightToCreateIsToldSo(t *testing.T) {
	for kind, says := range map[string]string{
		dbtest.KindPostgres: "permission denied", dbtest.KindMySQL: "command denied",
		dbtest.KindMariaDB: "command denied",
	} {
		t.Run(kind, func(t *testing.T) {
			db := dbtest.Empty(t, kind)
			user := readOnly(t, db)
			for _, sets := range [][]migrate.Set{nil, {migrate.Fences}} {
				err := migrate.Up(t.Context(), user, db.Engine, sets...)
				if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "aborted") ||
					!strings.Contains(err.Error(), "docs/privileges/"+string(db.Engine)+"-migrate.sql") {
					t.Error(err)
				}
			}
		})
	}
}

// readOnly is a pool of a user that may only read the database.
func readOnly(t *testing.T, db dbtest.Database) *sql.DB {
	t.Helper()
	admin := db.SQL(t)
	exec := func(text string) {
		t.Helper()
		require.NoError(t, require.ErrOf(admin.Exec(text)))
	}
	if db.Kind == dbtest.KindPostgres {
		u, err := url.Parse(db.DSN)
		require.NoError(t, err)
		name := strings.TrimPrefix(u.Path, "/")
		exec("CREATE ROLE " + name + " LOGIN")
		t.Cleanup(func() { exec("DROP OWNED BY " + name); exec("DROP ROLE " + name) })
		exec("REVOKE CREATE ON SCHEMA public FROM public")
		u.User = url.User(name)
		db.DSN = u.String()
		return db.SQL(t)
	}
	config, err := sqldriver.ParseDSN(db.DSN)
	require.NoError(t, err)
	name := config.DBName
	exec("CREATE USER " + name + "@'%' IDENTIFIED BY 'x'")
	t.Cleanup(func() { exec("DROP USER " + name + "@'%'") })
	exec("GRANT SELECT ON " + name + ".* TO " + name + "@'%'")
	config.User, config.Passwd = name, "x"
	db.DSN = config.FormatDSN()
	return db.SQL(t)
}

func TestAPoolOfAnotherServerIsNamed(t *testing.T) {
	servers := map[string]string{dbtest.KindSQLite: "SQLite", dbtest.KindPostgres: "PostgreSQL",
		dbtest.KindMySQL: "MySQL or MariaDB", dbtest.KindMariaDB: "MySQL or MariaDB"}
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		for _, engine := range []migrate.Engine{migrate.Postgres, migrate.MySQL, migrate.SQLite} {
			if engine == db.Engine {
				continue
			}
			says := `the engine is "` + string(engine) + `", and the pool is of ` + servers[db.Kind]
			_, status := migrate.Status(t.Context(), pool, engine)
			for what, err := range map[string]error{
				"Up": migrate.Up(t.Context(), pool, engine), "Down": migrate.Down(t.Context(), pool, engine),
				"Status": status,
			} {
				if err == nil && what != "Up" {
					continue // there is nothing to remove, and no error
				}
				if err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%s of %s: %v", what, engine, err)
				}
			}
		}
	})
}
