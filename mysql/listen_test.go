package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	dblock "github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

// ear is a session that listens.
type ear struct {
	actor
	*drivertest.Listener
}

// listen begins to listen, and sleeps for as long as the test runs: whatever it hears of woke it.
func (s server) listen(t *testing.T, pool *sql.DB) *ear {
	t.Helper()
	return s.listenIn(t, pool, time.Hour)
}

// listenIn has each statement of the listener sleep for nap, or less where reads time out.
func (s server) listenIn(t *testing.T, pool *sql.DB, nap time.Duration) *ear {
	t.Helper()
	a := on(t, pool)
	mysql.Nap(a.Backend, nap)
	return &ear{a, drivertest.Hear(t, a, a.session).Started()}
}

// end stops the listener, waits for it, and closes its connection.
func (e *ear) end(t *testing.T) error {
	t.Helper()
	err := e.Stop()
	require.NoError(t, e.Up.Close())
	return err
}

// hear waits until these attempts were heard of, each once and no others.
func (e *ear) hear(t *testing.T, attempts map[string]bool) {
	t.Helper()
	timeout := time.After(patience)
	for len(attempts) > 0 {
		select {
		case h := <-e.Hints:
			if h.Attempt == "" { // a KILL that came late, for a grant that was seen already
				continue
			}
			if !attempts[h.Attempt] {
				t.Fatalf("woken for %q", h.Attempt)
			}
			delete(attempts, h.Attempt)
		case err := <-e.Ended:
			t.Fatal(err)
		case <-timeout:
			t.Fatalf("%d grants were not heard of", len(attempts))
		}
	}
}

// On MariaDB, listeners that slept stopped each other and their granters for two seconds here: see
// gate.
func TestManyListenersAndGrantersDoNotStopEachOther(t *testing.T) {
	const listeners, granters = 3, 8
	rounds := soak(20, 100)
	each(t, func(t *testing.T, s server) {
		var ears []*ear
		var heard sync.Map // by attempt: a channel that is closed when it is heard of
		for range listeners {
			e := s.listen(t, s.open(t, nil))
			ears = append(ears, e)
			go func() {
				for {
					select {
					case h := <-e.Hints:
						if ch, ok := heard.LoadAndDelete(h.Attempt); ok {
							close(ch.(chan struct{}))
						}
					case <-t.Context().Done():
						return
					}
				}
			}()
		}
		granter := on(t, s.open(t, nil))
		var all sync.WaitGroup
		for g := range granters {
			all.Go(func() {
				for round := range rounds {
					held := granter.take(t, fmt.Sprint("n", g))
					waiter := ears[(g+round)%listeners]
					mine := make(chan struct{})
					heard.Store(waiter.enqueue(t, held.Name), mine)
					next, err := sole(drivertest.Release(t.Context(), granter, held, true))
					if err != nil {
						t.Error(err)
						return
					}
					select {
					case <-mine:
					case <-time.After(patience):
						t.Error("a grant was not heard of")
					}
					held = protocol.Held{Name: held.Name, Session: waiter.session, Token: next.Grant.Token}
					assert.NoError(t, assert.ErrOf(drivertest.Release(t.Context(), waiter, held, false)))
				}
			})
		}
		all.Wait()
		for _, e := range ears {
			is(t, e.end(t), context.Canceled)
		}
	})
}

func TestAListenerThatHoldsManyLocksSleeps(t *testing.T) {
	const names = 80
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		pool := server{s.Through(t, proxy), s.pool}.open(t, nil)
		waiter := s.listen(t, pool)
		granter := on(t, s.open(t, nil))
		attempts := map[string]bool{}
		for i := range names {
			name := fmt.Sprint("n", i)
			held := granter.take(t, name)
			attempts[waiter.enqueue(t, name)] = true
			does(t, granter, protocol.Release(held, true, false))
		}
		waiter.hear(t, attempts)
		dbtest.Eventually(t, "most grants to be marked as known", func() bool {
			return s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE unseen = 1") <= 64
		})
		waiter.sleeps(t, s)
		var requests atomic.Int32
		proxy.Watch(func([]byte) { requests.Add(1) })
		const turns = 50 // of somebody else; a listener that does not sleep has its own between them
		dbtest.Eventually(t, "a listener that sleeps to send nothing", func() bool {
			requests.Store(0)
			for range turns {
				s.number(t, "SELECT 1")
			}
			return requests.Load() == 0
		})
		proxy.Watch(nil)

		held := granter.take(t, "another")
		attempt := waiter.enqueue(t, "another")
		does(t, granter, protocol.Release(held, true, false))
		waiter.hear(t, map[string]bool{attempt: true})

		// A new listener does not tell of what was granted before it was ready.
		is(t, waiter.end(t), context.Canceled)
		again := drivertest.Hear(t, waiter, waiter.session).Started()
		is(t, again.Stop(), context.Canceled)
		assert.Equal(t, len(again.Hints), 0, "hints")
	})
}

// runs waits until the listener's statement with a text in it is at work, and not only prepared.
func (e *ear) runs(t *testing.T, s server, text string) {
	t.Helper()
	dbtest.Eventually(t, "the listener's statement", func() bool {
		return s.number(t, "SELECT COUNT(*) FROM "+s.Processes()+
			" WHERE id = IS_USED_LOCK(?) AND command = 'Execute' AND info LIKE ?", "dblock:"+e.session,
			"%"+text+"%") == 1
	})
}

// listening is how many connections a listener has.
func (s server) listening() int {
	return 2 // with the heartbeats'
}

// sleeps waits until the listener sleeps for long, and the connection beside it has looked.
func (e *ear) sleeps(t *testing.T, s server) {
	t.Helper()
	dbtest.Eventually(t, "the listener to sleep", func() bool {
		asleep := s.number(t, "SELECT COUNT(*) FROM "+s.Processes()+
			" WHERE id = IS_USED_LOCK(?) AND info LIKE '%IF(GET_LOCK(%'", "dblock:"+e.session)
		return asleep == 1 && e.pool.Stats().InUse == s.listening()
	})
}

// hearBoth waits for the wake-up of a grant, and for one without.
func (e *ear) hearBoth(t *testing.T, attempt string) {
	t.Helper()
	timeout := time.After(patience)
	for want := map[string]bool{attempt: true, "": true}; len(want) > 0; {
		select {
		case h := <-e.Hints:
			delete(want, h.Attempt)
		case err := <-e.Ended:
			t.Fatal(err)
		case <-timeout:
			t.Fatalf("%q were not heard", slices.Collect(maps.Keys(want)))
		}
	}
}

// asleep is a listener that sleeps while its session waits for a name, what grants it the name, and
// a connection to be in its way.
func (s server) asleep(t *testing.T) (waiter *ear, attempt string, grant func(), conn *sql.Conn) {
	t.Helper()
	waiter = s.listen(t, s.open(t, nil))
	granter := s.actor(t)
	held := granter.take(t, "n")
	attempt = waiter.enqueue(t, "n")
	waiter.sleeps(t, s)
	conn, err := s.pool.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	grant = func() { does(t, granter, protocol.Release(held, true, false)) }
	return waiter, attempt, grant, conn
}

// Broken by taking every KILL for that of the grant which is found: this one, of an Ask, hits the
// search.
func TestAWakeUpThatIsForNoGrantIsHeardBesideAGrant(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		waiter, attempt, grant, conn := s.asleep(t)
		_, err := conn.ExecContext(t.Context(), "LOCK TABLES dblock_shares WRITE") // stops Unseen
		require.NoError(t, err)
		grant()
		waiter.runs(t, s, "name: Unseen")
		s.exec(t, "KILL QUERY IS_USED_LOCK('dblock:"+waiter.session+"')")
		_, err = conn.ExecContext(t.Context(), "UNLOCK TABLES")
		require.NoError(t, err)
		waiter.hearBoth(t, attempt)
		is(t, waiter.end(t), context.Canceled)
	})
}

// The same where it hits a listener that marks grants as known.
func TestAWakeUpThatHitsTheMarkingOfGrantsIsHeard(t *testing.T) {
	const known = 64
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		waiter := s.listen(t, server{s.Through(t, proxy), s.pool}.open(t, nil))
		granter, asker := s.actor(t), actor{Backend: s.engine(t), session: waiter.session}
		var attempt string
		grant := func(i int) {
			held := granter.take(t, fmt.Sprint("n", i))
			attempt = asker.enqueue(t, held.Name)
			does(t, granter, protocol.Release(held, true, false))
		}
		for i := range known {
			grant(i)
			waiter.hear(t, map[string]bool{attempt: true})
		}
		waiter.sleeps(t, s)
		for len(waiter.Hints) > 0 {
			<-waiter.Hints
		}
		awake, goOn := stopAt(t, proxy, "", 1) // whatever it sends first
		grant(known)
		soon(t, "the listener to wake", awake)
		conn, err := s.pool.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.ExecContext(t.Context(), "LOCK TABLES dblock_locks READ") // stops LockUnseen, and not Unseen
		require.NoError(t, err)
		goOn()
		waiter.runs(t, s, "name: LockUnseen")
		s.exec(t, "KILL QUERY IS_USED_LOCK('dblock:"+waiter.session+"')")
		waiter.hearBoth(t, attempt)
		_, err = conn.ExecContext(t.Context(), "UNLOCK TABLES")
		require.NoError(t, err)
		is(t, waiter.end(t), context.Canceled)
	})
}

func TestAListenerThatEndsLeavesNothingOnTheServer(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for range 5 {
			waiter := s.listen(t, s.open(t, nil))
			waiter.sleeps(t, s)
			is(t, waiter.end(t), context.Canceled)
			dbtest.Eventually(t, "the named lock to be free", func() bool {
				return s.number(t, "SELECT IS_FREE_LOCK(?)", "dblock:"+waiter.session) == 1
			})
			if waiter.pool.Stats().InUse != 0 || waiter.pool.Stats().Idle > 3 {
				t.Errorf("%+v", waiter.pool.Stats())
			}
		}
	})
}

// On MariaDB another connection has the lock that the listener sleeps at.
func TestAListenerWhoseConnectionsAreKilledSaysSo(t *testing.T) {
	require.NoError(t, sqldriver.SetLogger(&sqldriver.NopLogger{}))
	each(t, func(t *testing.T, s server) {
		waiter := s.listen(t, s.open(t, nil))
		s.exec(t, "KILL IS_USED_LOCK('dblock:"+waiter.session+"')")
		is(t, waiter.Over(), dblock.ErrUnavailable)
		if s.Kind != dbtest.KindMariaDB {
			return
		}
		waiter = s.listen(t, s.open(t, nil))
		rows, err := s.pool.Query("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND command = " +
			"'Sleep' AND id <> CONNECTION_ID()")
		require.NoError(t, err)
		var idle []int64 // the sleep lock's among them
		for rows.Next() {
			var id int64
			require.NoError(t, rows.Scan(&id))
			idle = append(idle, id)
		}
		require.NoError(t, rows.Close())
		for _, id := range idle {
			if _, err := s.pool.Exec(fmt.Sprint("KILL ", id)); err != nil {
				t.Logf("connection %d has gone by itself: %v", id, err)
			}
		}
		is(t, waiter.Over(), dblock.ErrUnavailable)
	})
}

func TestAListenerTakesOverFromOneThatBrokeUnnoticed(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		waiter := s.listen(t, server{s.Through(t, proxy), s.pool}.open(t, nil))
		proxy.Freeze() // nobody notices: its connections stay
		is(t, drivertest.Hear(t, s.engine(t), waiter.session).Started().Stop(), context.Canceled)
		proxy.Heal()
		is(t, waiter.Over(), dblock.ErrUnavailable)
	})
}

// alternating gives the first two connections, of heartbeats and a listener, to one user, and all
// others to another.
type alternating struct {
	driver.Connector
	first driver.Connector
	n     atomic.Int32
}

func (a *alternating) Connect(ctx context.Context) (driver.Conn, error) {
	if a.n.Add(1) <= 2 {
		return a.first.Connect(ctx)
	}
	return a.Connector.Connect(ctx)
}

func TestWhereKillIsRefusedNothingListens(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		user := "u" + id()[:12]
		s.exec(t, "CREATE USER "+user+" IDENTIFIED BY 'p'")
		t.Cleanup(func() { _, _ = s.pool.Exec("DROP USER " + user) })
		config, err := sqldriver.ParseDSN(s.DSN)
		require.NoError(t, err)
		s.exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE, SHOW VIEW ON "+config.DBName+".* TO "+user)
		first, err := sqldriver.NewConnector(config)
		require.NoError(t, err)
		config = config.Clone()
		config.User, config.Passwd = user, "p"
		others, err := sqldriver.NewConnector(config)
		require.NoError(t, err)
		pool := sql.OpenDB(&alternating{Connector: others, first: first})
		defer pool.Close()
		backend := inside.Of(mysql.New(pool)).Backend
		mysql.Proof(backend, 100*time.Millisecond)
		err = drivertest.Listen(t.Context(), backend, id(), func() { t.Error("ready") }, func(protocol.Hint) {})
		is(t, err, dblock.ErrUnsupported)
		var cause *sqldriver.MySQLError
		if !errors.As(err, &cause) {
			t.Fatalf("%v does not say why", err)
		}
	})
}

// Reads that time out sooner than a listener would sleep do not break its connection.
func TestAListenerSleepsWithinTheReadTimeout(t *testing.T) {
	forSoak(t)
	each(t, func(t *testing.T, s server) {
		b := s.listen(t, s.open(t, func(c *sqldriver.Config) { c.ReadTimeout = 3 * time.Second }))
		select {
		case err := <-b.Ended:
			t.Fatal(err)
		case <-time.After(2 * 3 * time.Second):
		}
		is(t, b.end(t), context.Canceled)
	})
}

// The process that grants a lock may die between its commit and the wake-up.
func TestAGrantWithoutAWakeUpIsHeardOfAfterTheSleep(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s server) {
		b := s.listenIn(t, s.open(t, nil), 200*time.Millisecond)
		b.take(t, "n")
		_, err := s.pool.ExecContext(t.Context(),
			"UPDATE dblock_locks SET attempt = 'granted', unseen = 1 WHERE name = 'n'")
		require.NoError(t, err)
		b.hear(t, map[string]bool{"granted": true})
		is(t, b.end(t), context.Canceled)
	})
}

// A name may have been lost and granted again since a listener heard of it: of that grant nobody
// has told it yet.
func TestAListenerMarksTheGrantsThatItKnowsAndNoLaterOne(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.attending(t), s.attending(t)
		held := a.take(t, "n")
		b.enqueue(t, "n")
		does(t, a, protocol.Release(held, true, false))
		var attempt string
		require.NoError(t, s.pool.QueryRow("SELECT attempt FROM dblock_locks").Scan(&attempt))
		for known, unseen := range map[string]int64{"an earlier one": 1, attempt: 0} {
			s.exec(t, "UPDATE dblock_locks SET unseen = 1")
			require.NoError(t, mysql.Acknowledge(t.Context(), a.Backend, b.session, map[string]string{known: "n"}))
			if n := s.number(t, "SELECT unseen FROM dblock_locks"); n != unseen {
				t.Errorf("unseen is %d after %q was marked, want %d", n, known, unseen)
			}
		}
	})
}

// A backup's FLUSH TABLES WITH READ LOCK waits for each statement that names a table, and what
// writes waits behind it. This is the same for the tables of one database.
func TestAListenerThatSleepsHoldsUpNoLockOfTheTables(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		waiter, attempt, grant, conn := s.asleep(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := conn.ExecContext(ctx,
			"FLUSH TABLES dblock_locks, dblock_shares, dblock_waiters, dblock_sessions, dblock_heartbeats WITH READ "+
				"LOCK")
		require.NoError(t, err)
		_, err = conn.ExecContext(ctx, "UNLOCK TABLES")
		require.NoError(t, err)
		grant()
		waiter.hear(t, map[string]bool{attempt: true})
		is(t, waiter.end(t), context.Canceled)
	})
}

// A KILL that comes while the statement that sleeps is on its way hits nothing.
func TestAGrantJustBeforeTheSleepIsHeardOf(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		ready, goOn := make(chan struct{}), make(chan struct{})
		var asked atomic.Int32
		proxy.Watch(func(request []byte) {
			switch {
			case bytes.Contains(request, []byte("SELECT IF(GET_LOCK(")):
				close(ready)
				<-goOn
			case bytes.Contains(request, []byte("IS_USED_LOCK('dblock:")) && !bytes.Contains(request, []byte("KILL")):
				asked.Add(1)
			}
		})
		pool := server{s.Through(t, proxy), s.pool}.open(t, nil)
		waiter := s.listen(t, pool)
		granter, asker := s.actor(t), actor{Backend: s.engine(t), session: waiter.session}
		held := granter.take(t, "n")
		attempt := asker.enqueue(t, "n")
		soon(t, "the statement that sleeps", ready)
		dbtest.Eventually(t, "the other connection to wait for it", func() bool {
			return asked.Load() > 1 || asked.Load() > 0 && pool.Stats().InUse == s.listening() // or to have looked
		})
		does(t, granter, protocol.Release(held, true, false))
		close(goOn)
		waiter.hear(t, map[string]bool{attempt: true})
		is(t, waiter.end(t), context.Canceled)
	})
}
