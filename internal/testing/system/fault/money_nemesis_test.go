//go:build unix

package fault

import (
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

const (
	// inMotion are killed, or stopped briefly, while others are stopped for long, and some are left
	// in peace.
	inMotion      = 3
	stoppedAtOnce = 1
)

// torment does one round of everything to a bank, in an order of chance.
func (b *bank) torment() {
	b.Helper()
	rounds := []func(){b.longStop}
	if b.server != nil {
		rounds = append(rounds, b.restart)
	}
	b.random.Shuffle(len(rounds), func(i, j int) { rounds[i], rounds[j] = rounds[j], rounds[i] })
	for _, fault := range rounds {
		fault()
		b.goesOn()
	}
}

// longStop stops some processes past their TTL, and meanwhile does the rest to the others.
func (b *bank) longStop() {
	b.Helper()
	order := b.random.Perm(len(b.running))
	others, stopped := order[:inMotion], order[inMotion:]
	stopped = stopped[:min(len(stopped), stoppedAtOnce)]
	for _, i := range stopped {
		b.running[i].stop()
	}
	until := session.Boottime() + 2*ttl
	faults := []func(){
		func() { b.kill(others[0]) }, func() { b.kill(others[1]) }, func() { b.shortStop(b.running[others[2]]) }, b.cut,
		b.cut,
	}
	b.random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for _, fault := range faults {
		pass(time.Duration(b.random.Int64N(int64(ttl / 4))))
		fault()
	}
	pass(until - session.Boottime())
	for _, i := range stopped {
		b.running[i].resume()
	}
}

// stopHalf stops half of the processes past their TTL, and can cut all connections while they stand
// still.
func (b *bank) stopHalf(cut bool) {
	b.Helper()
	stopped := b.running[:len(b.running)/2]
	for _, c := range stopped {
		c.stop()
	}
	if cut {
		b.count("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() " +
			"AND pid <> pg_backend_pid()")
	}
	pass(2 * ttl)
	for _, c := range stopped {
		c.resume()
	}
}

func (b *bank) kill(i int) {
	b.Helper()
	b.running[i].kill()
	b.hire(i)
}

func (b *bank) shortStop(c *clerk) {
	b.Helper()
	c.stop()
	pass(ttl / 2)
	c.resume()
}

// cut kills some connections of any process, in the server.
func (b *bank) cut() {
	b.Helper()
	if b.db.Kind == dbtest.KindSQLite {
		return
	}
	for range 4 {
		b.terminate()
		b.tried("cuts", 1)
	}
}

// terminate ends any connection to the database but this test's own.
func (w *world) terminate() {
	w.Helper()
	if w.db.Kind == dbtest.KindPostgres {
		w.count("SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE datname = " +
			"current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) AS victim")
		return
	}
	id, there := w.number("SELECT id FROM %s WHERE db = database() AND id <> connection_id() ORDER BY rand() LIMIT 1",
		w.db.Processes())
	if there {
		_, _ = w.sql.ExecContext(w.Context(), fmt.Sprintf("KILL %d", id)) // an error is that it has gone by itself
	}
}
