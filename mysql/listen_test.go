package mysql_test

import (
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
	wakes chan string
	ended chan error
	stop  context.CancelFunc
}

// listen begins to listen, and sleeps for as long as the test runs: whatever it hears of woke it.
func (s server) listen(t *testing.T, pool *sql.DB) *ear {
	t.Helper()
	return s.listenIn(t, pool, time.Hour)
}

// listenIn has each statement of the listener sleep for nap, or less where reads time out.
func (s server) listenIn(t *testing.T, pool *sql.DB, nap time.Duration) *ear {
	t.Helper()
	e := &ear{actor: actor{Backend: mysql.New(pool).Backend, session: id(), pool: pool},
		wakes: make(chan string, 10_000), ended: make(chan error, 1)}
	mysql.Nap(e.Backend, nap)
	require.NoError(t, e.OpenSession(t.Context(), dblock.Session{ID: e.session, TTL: ttl}))
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	ready := make(chan struct{})
	go func() {
		e.ended <- drivertest.Listen(ctx, e, e.session, func() { close(ready) },
			func(h protocol.Hint) { e.wakes <- h.Attempt })
	}()
	t.Cleanup(e.stop)
	select {
	case <-ready:
	case err := <-e.ended:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("never ready")
	}
	return e
}

// end stops the listener and waits for it.
func (e *ear) end(t *testing.T) error {
	t.Helper()
	e.stop()
	select {
	case err := <-e.ended:
		return err
	case <-time.After(patience):
		t.Fatal("the listener goes on")
		return nil
	}
}

// hear waits until these attempts were heard of, each once and no others.
func (e *ear) hear(t *testing.T, attempts map[string]bool) {
	t.Helper()
	timeout := time.After(patience)
	for len(attempts) > 0 {
		select {
		case attempt := <-e.wakes:
			if attempt == "" { // a KILL that came late, for a grant that was seen already
				continue
			}
			if !attempts[attempt] {
				t.Fatalf("woken for %q", attempt)
			}
			delete(attempts, attempt)
		case err := <-e.ended:
			t.Fatal(err)
		case <-timeout:
			t.Fatalf("%d grants were not heard of", len(attempts))
		}
	}
}

func TestEveryGrantIsHeardOf(t *testing.T) {
	const names, releasers = 10, 3
	rounds := soak(8, 40)
	each(t, func(t *testing.T, s server) {
		waiter := s.listen(t, s.open(t, nil))
		granter := actor{Backend: s.engine(t), session: id()}
		require.NoError(t, granter.OpenSession(t.Context(), dblock.Session{ID: granter.session, TTL: ttl}))
		for range rounds {
			releases := make(chan protocol.Held, names)
			attempts := map[string]bool{}
			tokens := map[string]int64{}
			for i := range names {
				name := fmt.Sprint("n", i)
				held := granter.take(t, name)
				attempts[waiter.enqueue(t, name)] = true
				releases <- held
			}
			close(releases)
			var all sync.WaitGroup
			var mu sync.Mutex
			for range releasers {
				all.Go(func() {
					for held := range releases {
						next, err := sole(drivertest.Release(t.Context(), granter, held, true))
						if err != nil || next.Session != waiter.session {
							t.Error(next, err)
						}
						mu.Lock()
						tokens[held.Name] = next.Grant.Token
						mu.Unlock()
					}
				})
			}
			all.Wait()
			waiter.hear(t, attempts)
			for name, token := range tokens {
				held := protocol.Held{Name: name, Session: waiter.session, Token: token}
				require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), waiter, held, false)))
			}
		}
		is(t, waiter.end(t), context.Canceled)
	})
}

func TestOneWakeUpAfterAnother(t *testing.T) {
	rounds := soak(50, 300)
	each(t, func(t *testing.T, s server) {
		waiter := s.listen(t, s.open(t, nil))
		granter := actor{Backend: s.engine(t), session: id()}
		require.NoError(t, granter.OpenSession(t.Context(), dblock.Session{ID: granter.session, TTL: ttl}))
		for range rounds {
			held := granter.take(t, "n")
			attempt := waiter.enqueue(t, "n")
			next, err := sole(drivertest.Release(t.Context(), granter, held, true))
			require.NoError(t, err)
			waiter.hear(t, map[string]bool{attempt: true})
			require.NoError(t,
				require.ErrOf(drivertest.Release(t.Context(), waiter, protocol.Held{Name: "n", Session: waiter.session,
					Token: next.Grant.Token}, false)))
		}
	})
}

// On MariaDB, listeners that slept stopped each other and their granters for two seconds here: see
// gate.
func TestManyListenersAndGrantersDoNotStopEachOther(t *testing.T) {
	const listeners, granters = 4, 4
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
					case attempt := <-e.wakes:
						if ch, ok := heard.LoadAndDelete(attempt); ok {
							close(ch.(chan struct{}))
						}
					case <-t.Context().Done():
						return
					}
				}
			}()
		}
		granter := actor{Backend: s.engine(t), session: id()}
		require.NoError(t, granter.OpenSession(t.Context(), dblock.Session{ID: granter.session, TTL: ttl}))
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
		granter := actor{Backend: s.engine(t), session: id()}
		require.NoError(t, granter.OpenSession(t.Context(), dblock.Session{ID: granter.session, TTL: ttl}))
		attempts := map[string]bool{}
		for i := range names {
			name := fmt.Sprint("n", i)
			held := granter.take(t, name)
			attempts[waiter.enqueue(t, name)] = true
			require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), granter, held, true)))
		}
		waiter.hear(t, attempts)
		eventually(t, "most grants to be marked as known", func() bool {
			return s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE unseen = 1") <= 64
		})
		waiter.sleeps(t, s)
		var requests atomic.Int32
		proxy.Watch(func([]byte) { requests.Add(1) })
		const turns = 50 // of somebody else; a listener that does not sleep has its own between them
		eventually(t, "a listener that sleeps to send nothing", func() bool {
			requests.Store(0)
			for range turns {
				s.number(t, "SELECT 1")
			}
			return requests.Load() == 0
		})
		proxy.Watch(nil)

		held := granter.take(t, "another")
		attempt := waiter.enqueue(t, "another")
		require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), granter, held, true)))
		waiter.hear(t, map[string]bool{attempt: true})

		// A new listener does not tell of what was granted before it was ready.
		is(t, waiter.end(t), context.Canceled)
		again := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- drivertest.Listen(ctx, waiter, waiter.session, func() { close(again) },
				func(h protocol.Hint) { t.Errorf("woken for %q", h.Attempt) })
		}()
		<-again
		cancel()
		is(t, <-ended, context.Canceled)
	})
}

// runs waits until the listener's statement with a text in it is at work, and not only prepared.
func (e *ear) runs(t *testing.T, s server, text string) {
	t.Helper()
	eventually(t, "the listener's statement", func() bool {
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
	eventually(t, "the listener to sleep", func() bool {
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
		case heard := <-e.wakes:
			delete(want, heard)
		case err := <-e.ended:
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
	grant = func() { require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), granter, held, true))) }
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
			require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), granter, held, true)))
		}
		for i := range known {
			grant(i)
			waiter.hear(t, map[string]bool{attempt: true})
		}
		waiter.sleeps(t, s)
		for len(waiter.wakes) > 0 {
			<-waiter.wakes
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
			eventually(t, "the named lock to be free", func() bool {
				return s.number(t, "SELECT IS_FREE_LOCK(?)", "dblock:"+waiter.session) == 1
			})
			if waiter.pool.Stats().InUse != 0 || waiter.pool.Stats().Idle > 3 {
				t.Errorf("%+v", waiter.pool.Stats())
			}
		}
	})
}

func TestAListenerWhoseConnectionIsKilledSaysSo(t *testing.T) {
	require.NoError(t, sqldriver.SetLogger(&sqldriver.NopLogger{}))
	each(t, func(t *testing.T, s server) {
		waiter := s.listen(t, s.open(t, nil))
		s.exec(t, "KILL IS_USED_LOCK('dblock:"+waiter.session+"')")
		select {
		case err := <-waiter.ended:
			is(t, err, dblock.ErrUnavailable)
		case <-time.After(patience):
			t.Fatal("not noticed")
		}
	})
}

func TestAListenerTakesOverFromOneThatBrokeUnnoticed(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		waiter := s.listen(t, server{s.Through(t, proxy), s.pool}.open(t, nil))
		proxy.Freeze() // nobody notices: its connections stay
		ctx, cancel := context.WithCancel(t.Context())
		ready := make(chan struct{})
		ended := make(chan error, 1)
		direct := s.engine(t)
		go func() {
			ended <- drivertest.Listen(ctx, direct, waiter.session, func() { close(ready) }, func(protocol.Hint) {})
		}()
		select {
		case <-ready:
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(2 * patience):
			t.Fatal("never ready")
		}
		cancel()
		is(t, <-ended, context.Canceled)
		proxy.Heal()
		is(t, <-waiter.ended, dblock.ErrUnavailable)
	})
}

func TestAListenerWhoseGateOpensSaysSo(t *testing.T) {
	db := dbtest.Empty(t, dbtest.KindMariaDB)
	s := server{db, db.SQL(t)}
	s.migrate(t)
	waiter := s.listen(t, s.open(t, nil))
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
	select {
	case err := <-waiter.ended:
		is(t, err, dblock.ErrUnavailable)
	case <-time.After(patience):
		t.Fatal("not noticed")
	}
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
		s.exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE, SHOW VIEW ON "+s.database(t)+".* TO "+user)
		connector := func(change func(*sqldriver.Config)) driver.Connector {
			config, err := sqldriver.ParseDSN(s.DSN)
			require.NoError(t, err)
			change(config)
			c, err := sqldriver.NewConnector(config)
			require.NoError(t, err)
			return c
		}
		pool := sql.OpenDB(&alternating{
			Connector: connector(func(c *sqldriver.Config) { c.User, c.Passwd = user, "p" }),
			first:     connector(func(*sqldriver.Config) {}),
		})
		defer pool.Close()
		backend := mysql.New(pool).Backend
		mysql.Proof(backend, 100*time.Millisecond)
		err := drivertest.Listen(t.Context(), backend, id(), func() { t.Error("ready") }, func(protocol.Hint) {})
		is(t, err, dblock.ErrUnsupported)
		var cause *sqldriver.MySQLError
		if !errors.As(err, &cause) {
			t.Fatalf("%v does not say why", err)
		}
	})
}

func (s server) database(t *testing.T) string {
	t.Helper()
	var name string
	require.NoError(t, s.pool.QueryRow("SELECT DATABASE()").Scan(&name))
	return name
}

// Reads that time out sooner than a listener would sleep do not break its connection.
func TestAListenerSleepsWithinTheReadTimeout(t *testing.T) {
	forSoak(t)
	each(t, func(t *testing.T, s server) {
		b := s.listen(t, s.open(t, func(c *sqldriver.Config) { c.ReadTimeout = 3 * time.Second }))
		select {
		case err := <-b.ended:
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
