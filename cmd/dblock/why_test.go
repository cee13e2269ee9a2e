package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// owned is the lock of an owner, who is told by his thread.
func (w *world) owned(name, thread string, options ...dblock.LockOption) *dblock.Lock {
	w.Helper()
	return w.lock(name, append(options, dblock.Owner("there", thread))...)
}

// begin begins a transaction, and returns what the server calls its connection.
func (w *world) begin() (tx *sql.Tx, pid int64) {
	w.Helper()
	tx, err := w.db.Begin()
	require.NoError(w, err)
	w.Cleanup(func() { _ = tx.Rollback() })
	ask := probes[w.engine].id
	if w.engine == migrate.SQLite {
		ask = fmt.Sprint("SELECT ", os.Getpid())
	}
	require.NoError(w, tx.QueryRow(ask).Scan(&pid))
	return tx, pid
}

func (w *world) in(tx *sql.Tx, statement string) {
	w.Helper()
	require.NoError(w, require.ErrOf(tx.Exec(statement)))
}

func TestWhyGoesOnToTheTransactionAtTheEnd(t *testing.T) {
	eachKind(t, func(w *world) {
		contains(w, w.must("why", "nobody's"), "nobody's", "It is free.")
		w.owned("orders/1", "worker-1")
		w.owned("stock/9", "worker-2")
		w.waits("stock/9", 1, dblock.Owner("there", "worker-1"))
		w.waits("orders/1", 1)
		out := w.must("why", "orders/1")
		contains(w, out, "orders/1, for which 1 waits", "worker-1 (orders)", "stock/9, for which 1 waits",
			"worker-2 (orders)", "it waits for no lock")
		if strings.Contains(out, "LOCKED") {
			w.Errorf("nothing is locked:\n%s", out)
		}
		tx, pid := w.begin()
		w.in(tx, "UPDATE dblock_locks SET name = name WHERE name = 'stock/9'")
		out = w.must("why", "orders/1")
		contains(w, out, fmt.Sprintf("LOCKED by the transaction of PID %d", pid))
		if w.engine != migrate.SQLite && strings.Contains(out[:strings.Index(out, "stock/9")], "LOCKED") {
			w.Errorf("another name is locked:\n%s", out)
		}
		if w.engine == migrate.Postgres {
			contains(w, out, "idle in transaction", "UPDATE dblock_locks SET name = name")
		}
		if w.engine != migrate.SQLite { // whose probe always takes a second
			type link struct {
				Transactions []struct{ PID int64 }
				Untold       string
			}
			var links []link
			for line := range strings.Lines(w.must("why", "orders/1", "--json")) {
				var l link
				require.NoError(w, json.Unmarshal([]byte(line), &l))
				links = append(links, l)
			}
			if len(links) != 2 || len(links[1].Transactions) != 1 || links[1].Transactions[0].PID != pid ||
				links[1].Untold != "" {
				w.Errorf("%+v", links)
			}
		}
		require.NoError(w, tx.Rollback())
		if out := w.must("why", "stock/9"); strings.Contains(out, "LOCKED") || strings.Contains(out, "not known") {
			w.Errorf("nothing is locked any more:\n%s", out)
		}
	})
}

func TestWhySeesATransactionThatGuardsAHold(t *testing.T) {
	eachServer(t, func(w *world) {
		held := []*dblock.Lock{w.owned("alone", "1"), w.owned("together", "2", dblock.Permits(1, 2))}
		for _, l := range held {
			tx, pid := w.begin()
			require.NoError(w, w.client.Guard(w.Context(), tx, l))
			// nobody waits for one that has read and locked nothing, which MariaDB gives the same
			// number
			bystander, other := w.begin()
			require.NoError(w, bystander.QueryRowContext(w.Context(),
				"SELECT count(*) FROM dblock_locks").Scan(new(int)))
			out := w.must("why", l.Name())
			contains(w, out, fmt.Sprintf("LOCKED by the transaction of PID %d,", pid))
			if strings.Contains(out, fmt.Sprintf("PID %d,", other)) {
				w.Errorf("PID %d has locked nothing, and is blamed:\n%s", other, out)
			}
			if !w.isMariaDB() { // where those of other databases that only share rows have that number, too
				assert.Equal(w, strings.Count(out, "LOCKED"), 1, "transactions are blamed", out)
			}
			require.NoError(w, tx.Rollback())
		}
	})
}

// The transaction that has the row waits for another itself, which is idle.
func TestWhyNamesTheTransactionThatAllOthersWaitFor(t *testing.T) {
	eachServer(t, func(w *world) {
		for _, name := range []string{"wanted", "elsewhere"} {
			require.NoError(w, w.lock(name).Unlock(w.Context()))
		}
		idle, pid := w.begin()
		w.in(idle, "UPDATE dblock_locks SET name = name WHERE name = 'elsewhere'")
		waits, _ := w.begin()
		w.in(waits, "UPDATE dblock_locks SET name = name WHERE name = 'wanted'")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = waits.Exec("UPDATE dblock_locks SET name = name WHERE name = 'elsewhere'")
		}()
		w.until(func() bool {
			return strings.Contains(w.must("why", "wanted"), fmt.Sprintf("LOCKED by the transaction of PID %d,", pid))
		})
		require.NoError(w, idle.Rollback())
		<-done
	})
}

func TestWhySeesAPreparedTransaction(t *testing.T) {
	eachKind(t, func(w *world) {
		require.NoError(w, w.lock("n").Unlock(w.Context()))
		c, err := w.db.Conn(w.Context())
		require.NoError(w, err)
		id := "'" + rand.Text() + "'"
		do := func(c interface {
			ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		}, statements ...string) {
			w.Helper()
			for _, statement := range statements {
				require.NoError(w, require.ErrOf(c.ExecContext(context.Background(), statement)))
			}
		}
		do(c, "XA START "+id, "UPDATE dblock_locks SET token = token + 1 WHERE name = 'n'", "XA END "+id,
			"XA PREPARE "+id)
		w.Cleanup(func() { do(w.db, "XA ROLLBACK "+id) })
		// the client is gone, its transaction stays
		if err := c.Raw(func(any) error { return driver.ErrBadConn }); err == nil {
			w.Error("the connection was kept")
		}
		w.until(func() bool { return strings.Contains(w.must("why", "n"), "prepared (XA RECOVER)") })
	}, "mysql", "mariadb")
}

func TestWhySeesThoseWhoWaitForEachOther(t *testing.T) {
	w := onSQLite(t)
	w.client = w.newClient(dblock.WithDeadlockCheck(0))
	for i := range 3 {
		w.owned(fmt.Sprint("n", i), fmt.Sprint("worker-", i))
	}
	for i := range 3 {
		w.waits(fmt.Sprint("n", (i+1)%3), 1, dblock.Owner("there", fmt.Sprint("worker-", i)))
	}
	contains(t, w.must("why", "n1"), "n1: its holder waits for the one above: they wait for each other")
}

func TestWhySaysThatAHolderIsNoMore(t *testing.T) {
	w := onSQLite(t)
	w.client = w.newClient(dblock.WithoutReaper())
	w.lock("n", dblock.Lease(time.Hour))
	w.exec("UPDATE dblock_locks SET expires_at = 1")
	contains(t, w.must("why", "n"), "it has expired: the next waiter or the reaper revokes the lock")
}
