package suite

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var faults = inPlaces(own{
	{"a first lock over a pool whose idle connections are all dead is taken", deadPool},
}, flowing{
	{"killing the connections that listen loses no wake-up", func(t *testing.T, e *env) { killed(t, e, listeners) }},
	{"killing the connections that do not listen loses no lock and no wake-up",
		func(t *testing.T, e *env) { killed(t, e, others) }},
	{"killing every connection loses no lock and no wake-up", func(t *testing.T, e *env) { killed(t, e, everything) }},
})

// which connections of the clients to kill.
type which int

const (
	everything which = iota
	listeners
	others
)

// kill kills connections to the test's database, except the test's own, and returns how many. It
// returns before the clients have noticed.
//
// SQLite has no connections that another client could kill. The nearest fault is a transaction that
// keeps the database locked for a while: other connections cannot read what is not committed, and
// cannot write.
func (e *env) kill(t testing.TB, w which) int {
	t.Helper()
	switch e.wiring.Kind {
	case Postgres:
		condition := map[which]string{everything: "", listeners: "AND application_name LIKE 'dblock%'",
			others: "AND application_name NOT LIKE 'dblock%'"}[w]
		return int(e.number(t, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' `+condition))
	case SQLite:
		ctx := limited(t, patience)
		conn, err := e.look.Conn(ctx) // of its own: others look at the tables meanwhile
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, require.ErrOf(conn.ExecContext(ctx, "BEGIN IMMEDIATE")))
		within(t, soon, "a moment has passed", time.After(100*time.Millisecond))
		require.NoError(t, require.ErrOf(conn.ExecContext(ctx, "ROLLBACK")))
		return 1
	case Vitess: // whose connections to MySQL have the transactions
		ended, err := dbtest.EndBelow(t.Context(), e.look)
		require.NoError(t, err)
		return ended
	}
	condition := map[which]string{everything: "", listeners: "AND info RLIKE 'SLEEP|GET_LOCK'",
		others: "AND (info IS NULL OR info NOT RLIKE 'SLEEP|GET_LOCK')"}[w]
	ctx := limited(t, patience)
	rows, err := e.look.QueryContext(ctx, "SELECT id FROM "+e.db.Processes()+
		" WHERE db = DATABASE() AND id <> CONNECTION_ID() "+condition)
	require.NoError(t, err)
	var ids []int64
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	for _, id := range ids {
		if _, err := e.look.ExecContext(ctx, fmt.Sprintf("KILL CONNECTION %d", id)); err != nil {
			t.Logf("connection %d has gone by itself: %v", id, err)
		}
	}
	return len(ids)
}

// polled reports whether there is no listener: of PostgreSQL's drivers pgx alone can listen.
func (e *env) polled() bool {
	return e.wiring.Kind == Postgres && dbtest.PostgresDriver != "pgx" || e.wiring.plain()
}

// Broken by a client that gives up where the first connection is dead, or the second.
func deadPool(t *testing.T, e *env) {
	a := e.app(t, 6)
	if a.borrow == nil || e.wiring.Kind == SQLite || e.wiring.Kind == Vitess { // whose tablets have the connections
		t.Skip("no connection of the pool that the server could end")
	}
	for _, first := range map[string]func(c Client) error{
		"Lock": func(c Client) error {
			l, err := c.Lock(t.Context(), "n")
			if err == nil {
				err = l.Unlock(t.Context())
			}
			return err
		},
		"Inspect": func(c Client) error { _, err := c.Inspect(t.Context(), "n"); return err },
	} {
		c := e.clientOf(t, a)
		giveBack := e.exhaust(t, a)
		giveBack()
		e.kill(t, everything)
		is(t, first(c), nil)
	}
}

func killed(t *testing.T, e *env, w which) {
	within, ttl := soon, longTTL
	if e.wiring.Kind == TiDB { // the row locks of a killed connection may stay for 20 s
		within, ttl = 4*soon, longTTL*4/3
	}
	client := func() Client { return e.client(t, dblock.WithTTL(ttl)) }
	holder := client()
	clients := []Client{client(), client(), client()}
	l := lock(t, holder, "kept")
	first := lock(t, holder, "handed on")
	line := e.line(t, "handed on", 9, clients, background)
	if w == listeners && e.polled() {
		w = everything
	}
	eventually(t, soon, "there are connections to kill", func() bool { return e.kill(t, w) > 0 })
	e.beats(t, e.session(t, "kept"), 2, l, first)
	for range 3 { // more than a TTL
		e.kill(t, w)
		e.beats(t, e.session(t, "kept"), 2, l, first)
	}
	tokens := []int64{first.Token()}
	for _, next := range line {
		e.kill(t, w)
		unlock(t, first)
		first = granted(t, within, next)
		tokens = append(tokens, first.Token())
	}
	rising(t, tokens...)
	unlock(t, first)
	live(t, l)
	unlock(t, l)
	e.free(t, "kept")
	e.free(t, "handed on")
}

func killedUnderLoad(t *testing.T, e *env) {
	var clients []Client
	for range 3 {
		c := e.client(t)
		unlock(t, lock(t, c, "to have a session")) // a client that never reached the database says so at once
		clients = append(clients, c)
	}
	stop := make(chan struct{})
	fresh := e.db.SQL(t)
	fresh.SetMaxIdleConns(-1) // each use of it is a connect
	var killing sync.WaitGroup
	killing.Go(func() {
		least := 150 * time.Millisecond
		switch e.wiring.Kind {
		case SQLite: // to lock the database most of the time is no fault but a load
			least = time.Second
		case TiDB: // on which a row may stay locked for seconds after its connection was killed
			least = 5 * time.Second
		}
		for every := least; ; {
			select {
			case <-stop:
				return
			case <-time.After(every):
				began := time.Now()
				e.kill(t, everything)
				_ = fresh.PingContext(t.Context())
				// Where a statement or a connect takes long, a lock takes longer: each client makes
				// several connections anew.
				every = max(least, 10*time.Since(began))
			}
		}
	})
	exclusionAmong(t, e, clients, 4, 15)
	close(stop)
	killing.Wait()
}
