package suite

import (
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

var roles = inPlaces(own{
	{"roles with the documented rights, and no more, migrate, lock and look, in a schema of the tables' own",
		leastPrivileges},
	{"a role that lacks a right, or does not see the rows of a table, is told of which, and what to do", lacksRights},
	{"a transaction of a database without the tables is told so, and goes on", elsewhere},
})

// leastPrivileges has the tables in schema locks, which only the search_path of the roles names,
// and the application's own table in schema shop; on MySQL and MariaDB in two databases of a
// server. SQLite has no roles.
func leastPrivileges(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite {
		e.exec(t, "CREATE TABLE app (n integer)")
		everyday(t, e, "app")
		return
	}
	if e.wiring.Kind == Vitess {
		t.Skip("vtgate has users of its own, and no CREATE USER")
	}
	s := newShop(t, e.wiring)
	migrator, app, people := s.role(t, "migrate"), s.role(t, "app"), s.role(t, "people")
	s.grant(t, "migrate")
	require.NoError(t, migrate.Up(t.Context(), migrator.SQL(t), migrator.Engine))
	s.grant(t, "app")
	s.grant(t, "people")
	s.exec(t, "GRANT SELECT, INSERT ON "+s.table+" TO "+s.user("app"))
	require.NoError(t, migrate.Up(t.Context(), app.SQL(t), app.Engine))
	everyday(t, &env{wiring: s.wiring, db: app, look: s.look}, s.table)

	pool := people.SQL(t)
	for statement, may := range map[string]bool{
		"SELECT count(*) FROM dblock_who":        true,
		"SELECT count(*) FROM dblock_queue":      true,
		"DELETE FROM dblock_locks":               false,
		"SELECT count(*) FROM dblock_watchers":   false,
		"UPDATE dblock_sessions SET host = host": false,
	} {
		if _, err := pool.ExecContext(t.Context(), statement); (err == nil) != may {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if s.wiring.Kind == Postgres {
		if n := s.number(t, "SELECT count(*) FROM pg_class WHERE relname LIKE 'dblock%' AND relnamespace <> "+
			"'locks'::regnamespace AND relkind IN ('r', 'v')"); n > 0 {
			t.Errorf("%d tables are outside of schema locks", n)
		}
	}
}

// lacksRights takes rights from a role that has the documented ones.
func lacksRights(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite || e.wiring.Kind == Vitess {
		return
	}
	s := newShop(t, e.wiring)
	require.NoError(t, migrate.Up(t.Context(), s.look, s.db.Engine))
	app := s.role(t, "app")
	s.grant(t, "app")
	refused := func(parts ...string) {
		t.Helper()
		c := (&env{wiring: s.wiring, db: app, look: s.look}).client(t)
		_, err := c.Lock(brief(t), "n")
		says(t, err, dblock.ErrConfig, parts...)
	}
	s.exec(t, "REVOKE INSERT ON dblock_sessions FROM "+s.user("app"))
	refused("lacks a right of docs/privileges/"+string(s.db.Engine)+"-app.sql", "denied", "dblock_sessions")
	s.grant(t, "app")
	if s.wiring.Kind != Postgres {
		return
	}
	s.exec(t, "ALTER TABLE dblock_schema ENABLE ROW LEVEL SECURITY")
	refused("row level security hides the rows of table dblock_schema from role", s.user("app"),
		"give the role a policy")
	s.exec(t, "CREATE POLICY app ON dblock_schema USING (true)")
	s.exec(t, "ALTER TABLE dblock_sessions ENABLE ROW LEVEL SECURITY")
	refused(`for table "dblock_sessions"`, "need no row level security: switch it off")
	s.exec(t, "CREATE POLICY app ON dblock_sessions USING (true)")
	c := (&env{wiring: s.wiring, db: app, look: s.look}).client(t)
	unlock(t, lock(t, c, "n"))
}

// elsewhere: a transaction of the application's may be of another database, or have a search_path
// of its own, which means nothing. MySQL's databases are schemas.
func elsewhere(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // a connection has one main file
		return
	}
	without, away := e.wiring.Open(t, dbtest.Empty(t, e.wiring.Kind), 5), "DO 0"
	c := e.client(t)
	l := lock(t, c, "held")
	for range 3 { // the engine prepares what it has seen
		if e.wiring.Kind != Postgres {
			break
		}
		tx := beginTx(t, without, e.readCommitted())
		for _, err := range []error{c.TryLockTx(brief(t), tx, "n"), c.Guard(brief(t), tx, l)} {
			says(t, err, dblock.ErrSchema, "another database") // only the transaction lacks the tables
		}
		if n, err := tx.number(t.Context(), "SELECT 1"); err != nil || n != 1 {
			t.Errorf("the transaction does not go on: %v", err)
		}
		rollback(t, tx)
	}
	if e.wiring.Kind == Postgres {
		without, away = e.app(t, 5), "SET LOCAL search_path = nowhere"
	}
	// A pool of the application's own is as good as the engine's.
	tx := beginTx(t, without, e.readCommitted())
	is(t, tx.exec(t.Context(), away), nil)
	for _, name := range []string{"a", "b", "c"} {
		lockTx(t, c, tx, name)
	}
	is(t, c.Guard(t.Context(), tx, l), nil)
	is(t, c.UnlockTx(t.Context(), tx, l), nil)
	commit(t, tx)
}

// shop is an application's database before any tables are in it, with the test's own connection as
// an administrator, whose statements find dblock's tables too.
type shop struct {
	*env
	name  string // of the database, and of the roles' names the beginning
	table string // of the application, with the name of its schema
}

func newShop(t *testing.T, w Wiring) shop {
	s := shop{env: emptyEnv(t, w)}
	if w.Kind == Postgres {
		u, err := url.Parse(s.db.DSN)
		is(t, err, nil)
		s.name, s.table = strings.TrimPrefix(u.Path, "/"), "shop.app"
		for _, statement := range []string{
			"REVOKE ALL ON DATABASE " + s.name + " FROM PUBLIC", "REVOKE ALL ON SCHEMA public FROM PUBLIC",
			"ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC",
			"CREATE SCHEMA locks", "CREATE SCHEMA shop", "SET search_path = locks",
		} {
			s.exec(t, statement)
		}
	} else {
		c, err := mysql.ParseDSN(s.db.DSN)
		is(t, err, nil)
		other, err := mysql.ParseDSN(dbtest.Empty(t, w.Kind).DSN)
		is(t, err, nil)
		s.name, s.table = c.DBName, other.DBName+".app"
	}
	s.exec(t, "CREATE TABLE "+s.table+" (n integer)")
	return s
}

// user is the name of a role in a statement.
func (s shop) user(role string) string {
	if s.wiring.Kind == Postgres {
		return s.name + "_" + role
	}
	return s.short(role) + "@'%'"
}

// short is a name that MySQL takes for a user: 32 characters at most.
func (s shop) short(role string) string { return s.name[len(s.name)-20:] + "_" + role }

// role makes a role without any rights, and returns the database as that role sees it.
func (s shop) role(t *testing.T, role string) dbtest.Database {
	t.Helper()
	db, user := s.db, s.user(role)
	if s.wiring.Kind == Postgres {
		s.exec(t, "CREATE ROLE "+user+" LOGIN PASSWORD 'secret'")
		t.Cleanup(func() { s.exec(t, "DROP OWNED BY "+user+" CASCADE"); s.exec(t, "DROP ROLE "+user) })
		s.exec(t, "ALTER ROLE "+user+" IN DATABASE "+s.name+" SET search_path = locks")
		if role == "migrate" { // whose functions are its own to give
			s.exec(t, "ALTER DEFAULT PRIVILEGES FOR ROLE "+user+" REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
		}
		if role == "app" {
			s.exec(t, "GRANT USAGE ON SCHEMA shop TO "+user)
		}
		u, err := url.Parse(db.DSN)
		is(t, err, nil)
		u.User = url.UserPassword(user, "secret")
		db.DSN = u.String()
		return db
	}
	s.exec(t, "CREATE USER "+user+" IDENTIFIED BY 'secret'")
	t.Cleanup(func() { s.exec(t, "DROP USER "+user) })
	c, err := mysql.ParseDSN(db.DSN)
	is(t, err, nil)
	c.User, c.Passwd = s.short(role), "secret"
	db.DSN = c.FormatDSN()
	return db
}

// grant runs the documented statements for a role.
func (s shop) grant(t *testing.T, role string) {
	t.Helper()
	dialect := string(s.db.Engine)
	_, here, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../../docs/privileges", dialect+"-"+role+".sql"))
	is(t, err, nil)
	names := strings.NewReplacer("orders_"+role+"@'%'", s.user(role), "orders_"+role, s.user(role), "orders", s.name)
	for statement := range strings.SplitSeq(uncommented(string(text)), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			s.exec(t, names.Replace(statement))
		}
	}
}

func uncommented(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}
