package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
)

// console is a connection on which somebody types.
func (w *world) console(statement string, arguments ...any) (c *sql.Conn, pid int64) {
	w.Helper()
	c, err := w.db.Conn(w.Context())
	require.NoError(w, err)
	w.Cleanup(func() { _ = c.Close() })
	require.NoError(w, c.QueryRowContext(w.Context(), probes[w.engine].id).Scan(&pid))
	require.NoError(w, require.ErrOf(c.ExecContext(w.Context(), statement, arguments...)))
	return c, pid
}

// listedLock is what --json shows of a native lock.
type listedLock struct {
	Name, Key, Kind, User, From, State string
	PID                                int64
}

// listed are the locks that ls --native lists with these keys.
func (w *world) listed(arguments []string, keys ...string) (locks []listedLock) {
	w.Helper()
	for line := range strings.Lines(w.must(append([]string{"ls", "--native", "--json"}, arguments...)...)) {
		var n listedLock
		require.NoError(w, json.Unmarshal([]byte(line), &n))
		for _, key := range keys { // the server has more databases, and other tests
			if n.Key == key {
				locks = append(locks, n)
			}
		}
	}
	return locks
}

func TestLsShowsTheDatabasesOwnLocks(t *testing.T) {
	eachServer(t, func(w *world) {
		name := strings.ToLower(rand.Text())
		if w.kind == dbtest.KindPostgres {
			key := fmt.Sprint(postgres.AdvisoryKey(name))
			_, pid := w.console("SELECT pg_advisory_lock_shared($1)", postgres.AdvisoryKey(name))
			waits, other := w.console("SELECT pg_advisory_lock(-5, 7)")
			waiting := w.inBackground(waits, "SELECT pg_advisory_lock($1)", postgres.AdvisoryKey(name))
			w.until(func() bool { return len(w.listed(nil, key)) == 2 })
			got := w.listed([]string{name}, key, "(-5, 7)")
			if len(got) != 2 || got[0].Kind != "shared" || got[0].PID != pid || got[0].Name != name ||
				got[0].State != "idle" || got[0].From == "" ||
				got[1].Kind != "exclusive, waits" || got[1].PID != other {
				w.Errorf("%+v", got)
			}
			if got := w.listed(nil, "(-5, 7)"); len(got) != 1 || got[0].Name != "" || got[0].Kind != "exclusive" {
				w.Errorf("%+v", got)
			}
			waiting()
		} else {
			if w.kind == dbtest.KindMariaDB {
				w.withPlugin()
			}
			_, pid := w.console("DO GET_LOCK('" + mysql.NamedKey(name) + "', 0)")
			w.console("DO GET_LOCK('" + mysql.NamedKey(name+"2") + "', 0)")
			for _, arguments := range [][]string{nil, {name}} {
				got := w.listed(arguments, mysql.NamedKey(name))
				if len(got) != 1 || got[0].Name != name || got[0].PID != pid || got[0].Kind != "exclusive" ||
					got[0].User == "" {
					w.Errorf("%+v", got)
				}
			}
			if got := w.listed([]string{name}, mysql.NamedKey(name+"2")); len(got) != 0 {
				w.Errorf("of another name: %+v", got)
			}
		}
		contains(w, w.must("ls", "--native", name), "KEY", name)
		contains(w, w.must("ls", "--native", "nobody's"), "No connection has")
	})
}

// inBackground runs a statement that waits, and returns how to end it.
func (w *world) inBackground(c *sql.Conn, statement string, arguments ...any) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.ExecContext(ctx, statement, arguments...)
	}()
	return func() {
		cancel()
		<-done
	}
}

// withPlugin has MariaDB load the plugin that lists named locks, after a look at what ls says
// without it. The test ends there, as skipped, where the server's packages lack the plugin: of
// Debian's, mariadb-server has it, and mariadb-server-core has not.
// DBLOCK_TEST_REQUIRE=metadata_lock_info makes that a failure.
func (w *world) withPlugin() {
	w.Helper()
	const (
		plugin    = "metadata_lock_info"
		install   = "INSTALL SONAME '" + plugin + "'"
		noLibrary = 1126
	)
	var loaded bool
	require.NoError(w, w.db.QueryRow("SELECT COUNT(*) > 0 FROM information_schema.plugins WHERE plugin_name = ?",
		plugin).Scan(&loaded))
	if loaded {
		return
	}
	s := w.run("ls", "--native")
	if s.status == 0 {
		w.Errorf("without the plugin: %+v", s)
	}
	contains(w, s.err, install, "IS_USED_LOCK")
	_, err := w.db.Exec(install)
	if err == nil {
		w.Cleanup(func() { _, _ = w.db.Exec("UNINSTALL SONAME '" + plugin + "'") })
		return
	}
	if errorNumber(err) != noLibrary || slices.Contains(strings.Split(os.Getenv("DBLOCK_TEST_REQUIRE"), ","), plugin) {
		w.Fatal(err)
	}
	w.Skipf("this MariaDB has no plugin %s, which Debian's package mariadb-server has: %v", plugin, err)
}
