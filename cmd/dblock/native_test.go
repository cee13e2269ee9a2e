package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
)

// console is a connection on which somebody types.
func (w *world) console(statement string, arguments ...any) (c *sql.Conn, pid int64) {
	w.Helper()
	c, err := w.db.Conn(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	if err := c.QueryRowContext(w.Context(), probes[w.engine].id).Scan(&pid); err != nil {
		w.Fatal(err)
	}
	if _, err := c.ExecContext(w.Context(), statement, arguments...); err != nil {
		w.Fatal(err)
	}
	return c, pid
}

// listed are the locks that ls --native lists with these keys.
func (w *world) listed(arguments []string, keys ...string) (locks []native) {
	w.Helper()
	for line := range strings.Lines(w.must(append([]string{"ls", "--native", "--json"}, arguments...)...)) {
		var n native
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			w.Fatal(err)
		}
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
			if len(got) != 2 || got[0].Kind != "shared" || got[0].PID != pid || got[0].Name != name || got[0].State != "idle" || got[0].From == "" ||
				got[1].Kind != "exclusive, waits" || got[1].PID != other {
				w.Errorf("%+v", got)
			}
			if got := w.listed(nil, "(-5, 7)"); len(got) != 1 || got[0].Name != "" || got[0].Kind != "exclusive" {
				w.Errorf("%+v", got)
			}
			waiting()
		} else {
			if w.kind == dbtest.KindMariaDB {
				w.installs("metadata_lock_info")
			}
			_, pid := w.console("DO GET_LOCK('" + mysql.NamedKey(name) + "', 0)")
			w.console("DO GET_LOCK('" + mysql.NamedKey(name+"2") + "', 0)")
			for _, arguments := range [][]string{nil, {name}} {
				got := w.listed(arguments, mysql.NamedKey(name))
				if len(got) != 1 || got[0].Name != name || got[0].PID != pid || got[0].Kind != "exclusive" || got[0].User == "" {
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

// installs installs a plugin of MariaDB until the test ends, if it is not there.
func (w *world) installs(plugin string) {
	w.Helper()
	if _, err := w.db.Exec("INSTALL SONAME '" + plugin + "'"); err == nil {
		w.Cleanup(func() { _, _ = w.db.Exec("UNINSTALL SONAME '" + plugin + "'") })
	}
}

func TestAFileHasNoLocksOfItsOwn(t *testing.T) {
	w := onSQLite(t)
	if s := w.run("ls", "--native"); s.status != exitUsage || !strings.Contains(s.err, "SQLite has no locks of its own") {
		t.Errorf("%+v", s)
	}
}
