package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

func TestAShareIsTakenOffOnceThoughItIsReleasedAndReclaimedAtOnce(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b, c := s.actor(t), s.actor(t), s.actor(t)
		r := a.units("n", 2, 5)
		r.Lease = time.Hour
		held := a.share(t, r)
		b.share(t, b.units("n", 3, 5))
		s.exec(t, "UPDATE dblock_shares SET expires_at = 1 WHERE token = ?", held.Token)
		locking := s.transaction(t, "SELECT name FROM dblock_locks WHERE name = 'n' FOR UPDATE")
		releasing := start(t, func(ctx context.Context) (bool, error) {
			_, err := drivertest.Release(ctx, a, held, false)
			return err == nil, ignore(err, driver.ErrNotHeld)
		})
		reclaiming := start(t, func(ctx context.Context) (bool, error) {
			_, taken, err := drivertest.TakeOver(ctx, c, c.session, "n", protocol.Holder{Session: a.session,
				Grant: protocol.Grant{Token: held.Token, Lease: -1}})
			return taken, err
		})
		s.blocked(t, a)
		s.blocked(t, c)
		require.NoError(t, locking.Commit())
		released, reclaimed := <-releasing, <-reclaiming
		if released.err != nil || reclaimed.err != nil || released.value == reclaimed.value {
			t.Fatalf("released %+v, reclaimed %+v: one of them must have done it", released, reclaimed)
		}
		require.Equal(t, s.used(t, "n"), 3, "units are left")
	})
}

func ignore(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

func TestOfTwoUpgradesAtOnceNoneGetsPastTheOther(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		for range 10 {
			name := id()
			ra, rb := a.reader(name), b.reader(name)
			ha, hb := a.share(t, ra), b.share(t, rb)
			upgrades := []<-chan outcome[bool]{
				start(t, func(ctx context.Context) (bool, error) {
					_, upgraded, err := a.upgrade(ctx, ha, ra.Attempt)
					return upgraded, err
				}),
				start(t, func(ctx context.Context) (bool, error) {
					_, upgraded, err := b.upgrade(ctx, hb, rb.Attempt)
					return upgraded, err
				}),
			}
			for _, u := range upgrades {
				if got := <-u; got.err != nil || got.value {
					t.Fatalf("%+v, want refused", got)
				}
			}
			require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), b, hb, true)))
			if _, upgraded, err := a.upgrade(t.Context(), ha, ra.Attempt); err != nil || !upgraded ||
				s.used(t, name) != 0 {
				t.Fatal(upgraded, err)
			}
		}
	})
}

func TestAReaderThatWaitedForTheRowDecidesByItAsItIsThen(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		for _, change := range []string{"waiters = 1", "session_id = 'x'", "rests_until = token + 3600000000",
			"capacity = 7", "shared_units = capacity"} {
			name := id()
			a.share(t, a.reader(name))
			meanwhile := s.transaction(t, "UPDATE dblock_locks SET "+change+" WHERE name = ?", name)
			taking := start(t, func(ctx context.Context) (bool, error) {
				_, taken, err := drivertest.Take(ctx, b, b.reader(name))
				return taken, err
			})
			s.blocked(t, b)
			require.NoError(t, meanwhile.Commit())
			if got := <-taking; got.err != nil || got.value {
				t.Fatalf("%s: %+v, want not taken", change, got)
			}
		}
	})
}

// At REPEATABLE READ, or with a range, a hand-over would wait for rows of the names beside it.
func TestAHandOverDoesNotWaitForTheNeighbours(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, dead := s.actor(t), s.actor(t)
		for _, name := range []string{"m", "o"} {
			a.take(t, name)
			a.wait(t, a.request(name))
			a.share(t, a.reader(name+"r"))
		}
		held := a.take(t, "n")
		var want []string
		for range 3 {
			dead.wait(t, dead.request("n"))
			want = append(want, a.wait(t, a.reader("n")))
		}
		a.wait(t, a.request("n"))
		s.expire(t, dead)
		for _, text := range []string{
			"SELECT name FROM dblock_waiters FORCE INDEX (PRIMARY) WHERE name IN ('m', 'o') FOR UPDATE",
			"SELECT name FROM dblock_shares FORCE INDEX (PRIMARY) WHERE name IN ('mr', 'or') FOR UPDATE",
			"SELECT name FROM dblock_locks FORCE INDEX (PRIMARY) WHERE name IN ('m', 'mr', 'o', 'or') FOR UPDATE",
		} {
			s.transaction(t, text)
		}
		got := <-start(t, func(ctx context.Context) ([]protocol.Handoff, error) {
			return drivertest.Release(ctx, a, held, true)
		})
		if got.err != nil || !slices.Equal(attempts(got.value), want) {
			t.Fatalf("%+v, want the readers", got)
		}
		asked := <-start(t, func(ctx context.Context) (int, error) {
			return a.ask(ctx, "n", "why", protocol.Event{Name: "n", Kind: "asked"})
		})
		if asked.err != nil || asked.value != 3 {
			t.Fatalf("%+v", asked)
		}
		var all []protocol.Held
		for _, h := range got.value {
			all = append(all, protocol.Held{Name: "n", Session: h.Session, Token: h.Grant.Token, Shared: true})
		}
		rest := <-start(t, func(ctx context.Context) ([]protocol.Held, error) {
			return drivertest.ReleaseAll(ctx, a, all)
		})
		if rest.err != nil || len(rest.value) != 3 {
			t.Fatalf("%+v, want all of them, since somebody waits", rest)
		}
	})
}

func TestBatchesInOppositeOrdersEnd(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		const rounds = 8
		names := make([]string, 6)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		var all sync.WaitGroup
		began := time.Now()
		for i := range 4 {
			e := s.engine(t)
			a := actor{Backend: e, session: id()}
			require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, TTL: ttl}))
			mine := slices.Clone(names)
			if i%2 == 1 {
				slices.Reverse(mine)
			}
			all.Go(func() {
				for range rounds {
					var rs []protocol.Request
					for _, name := range mine {
						rs = append(rs, a.request(name))
					}
					grants, _, err := drivertest.Batch(t.Context(), a, rs, nil)
					if err != nil {
						if !errors.Is(err, driver.ErrBusy) && !errors.Is(err, driver.ErrRetry) {
							t.Error(err)
						}
						continue
					}
					var held []protocol.Held
					for i, g := range grants {
						if g.Token != 0 {
							held = append(held, protocol.Held{Name: rs[i].Name, Session: a.session, Token: g.Token})
						}
					}
					for len(held) > 0 {
						if held, err = drivertest.ReleaseAll(t.Context(), a, held); err != nil &&
							!errors.Is(err, driver.ErrRetry) {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 30*time.Second {
			t.Fatalf("%v", took)
		}
		require.Equal(t, s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE session_id IS NOT NULL"), 0, "are held")
	})
}

// aside runs what a client does on its reserved connection.
func onSideConn(t *testing.T, b driver.Backend) driver.OnSideConn {
	t.Helper()
	up, err := b.Upkeep(t.Context(), "s")
	require.NoError(t, err)
	t.Cleanup(func() { _ = up.Close() })
	var mu sync.Mutex // one call at a time has the connection
	return func(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
		mu.Lock()
		defer mu.Unlock()
		return do(ctx, up)
	}
}

func TestAShareInATransactionOfTheApplication(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead,
			sql.LevelSerializable} {
			pool := s.open(t, nil)
			e := mysql.New(pool)
			a := actor{Backend: e.Backend, session: id()}
			require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, TTL: ttl}))
			beside, name := onSideConn(t, e.Backend), id()
			begin := func() *sql.Tx {
				tx, err := pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				require.NoError(t, err)
				t.Cleanup(func() { _ = tx.Rollback() })
				if level != sql.LevelSerializable { // where it locks what it reads
					var n int
					require.NoError(t, tx.QueryRow("SELECT COUNT(*) FROM dblock_shares").Scan(&n)) // an old snapshot
				}
				return tx
			}
			tx := begin()
			held := a.share(t, a.units(name, 2, 3))
			whole := held
			whole.Shared = false
			is(t, e.In(nil).MakeGuard(t.Context(), whole, beside), driver.ErrNotHeld)
			is(t, e.In(tx).Guard(t.Context(), whole, beside), driver.ErrNotHeld)
			require.NoError(t, e.In(nil).MakeGuard(t.Context(), held, beside))
			require.NoError(t, e.In(tx).Guard(t.Context(), held, beside))
			is(t, e.In(tx).Release(t.Context(), whole, protocol.Detachment{}, beside), driver.ErrNotHeld)
			require.NoError(t, e.In(tx).Release(t.Context(), held, protocol.Detachment{}, beside))
			is(t, e.In(tx).Release(t.Context(), held, protocol.Detachment{}, beside), driver.ErrNotHeld)
			require.NoError(t, tx.Rollback())
			require.Equal(t, s.used(t, name), 2, "the rollback did not give it back")

			tx = begin()
			state, locked, err := e.In(tx).Lock(t.Context(), name,
				func(string, int, any) bool { return true }, true, beside)
			if err != nil || locked || state.Holder.Session != a.session || state.Sharing != 1 ||
				state.Holder.Units != 2 {
				t.Fatalf("%+v %v %v", state, locked, err)
			}
			require.NoError(t, tx.Rollback())
			tx = begin()
			attempt := a.wait(t, a.units(name, 3, 3))
			require.NoError(t, e.In(tx).Release(t.Context(), held, protocol.Detachment{}, beside))
			require.NoError(t, tx.Commit())
			if state := a.look(t, name); s.used(t, name) != 0 || !state.Ready || len(state.Granted) != 0 {
				t.Fatalf("%+v", state)
			}
			next, taken, err := soleTaken(drivertest.TakeOver(t.Context(), a, a.session, name, protocol.Holder{}))
			if err != nil || !taken || next.Attempt != attempt || s.used(t, name) != 3 {
				t.Fatal(next, taken, err)
			}
		}
	})
}

func TestNoNeighbourWaitsForAShareThatATransactionReleased(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.open(t, nil)
		e := mysql.New(pool)
		a := actor{Backend: e.Backend, session: id()}
		require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, TTL: ttl}))
		held, beside := a.share(t, a.reader("n")), onSideConn(t, e.Backend)
		tx, err := pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		gone := held
		gone.Token--
		is(t, e.In(tx).Release(t.Context(), gone, protocol.Detachment{}, beside), driver.ErrNotHeld)
		require.NoError(t, e.In(tx).Release(t.Context(), held, protocol.Detachment{}, beside))
		for _, name := range []string{"m", "n ", "o"} {
			got := <-start(t, func(ctx context.Context) (bool, error) {
				_, taken, err := drivertest.Take(ctx, a, a.reader(name))
				return taken, err
			})
			if got.err != nil || !got.value {
				t.Fatalf("%q: %+v", name, got)
			}
		}
	})
}

func TestEveryShareThatIsHandedIsHeardOf(t *testing.T) {
	const sessions, each1, rounds = 3, 30, 5 // more for one session than it keeps in mind
	each(t, func(t *testing.T, s server) {
		granter := actor{Backend: s.engine(t), session: id()}
		require.NoError(t, granter.OpenSession(t.Context(), driver.Session{ID: granter.session, TTL: ttl}))
		ears := make([]*ear, sessions)
		for i := range ears {
			ears[i] = s.listen(t, s.open(t, nil))
		}
		for round := range rounds {
			name := fmt.Sprint("n", round)
			held := granter.take(t, name)
			attempts := make([]map[string]bool, sessions)
			for i, e := range ears {
				attempts[i] = map[string]bool{}
				for range each1 {
					attempts[i][e.wait(t, e.reader(name))] = true
				}
			}
			next, err := drivertest.Release(t.Context(), granter, held, true)
			if err != nil || len(next) != sessions*each1 {
				t.Fatal(len(next), err)
			}
			for i, e := range ears {
				e.hear(t, attempts[i])
			}
		}
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_shares WHERE unseen = 0"); n == 0 {
			t.Fatal("no listener has said what it knows")
		}
		for _, e := range ears {
			is(t, e.end(t), context.Canceled)
		}
	})
}

// A KILL that fell between two statements of the listener is lost: then the next sleep must not
// begin.
func TestASleepDoesNotBeginWhileAHandedShareIsNotKnown(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		held := a.take(t, "n")
		attempt := b.wait(t, b.reader("n"))
		require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a, held, true)))
		sleepLock := id()
		conn, err := s.pool.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.ExecContext(t.Context(), "DO GET_LOCK(?, 0)", sleepLock)
		require.NoError(t, err)
		q := mysqldb.New(s.open(t, nil))
		for known, asleep := range map[string]bool{"": false, "other": false, "other," + attempt: true} {
			nap := time.Hour // a sleep that should not begin hangs
			if asleep {
				nap = time.Second // GET_LOCK of MySQL knows whole seconds
			}
			for what, sleep := range map[string]func() error{
				"sleep": func() error {
					_, err := q.SleepUntilUnseen(t.Context(), mysqldb.SleepUntilUnseenParams{Session: b.session,
						Known: known, Micros: nap.Microseconds()})
					return err
				},
				"sleepLock": func() error {
					_, err := q.SleepAtLock(t.Context(), mysqldb.SleepAtLockParams{Session: b.session, Known: known,
						SleepLock: sleepLock, Micros: nap.Microseconds()})
					return err
				},
			} {
				began := time.Now()
				require.NoError(t, sleep())
				if took := time.Since(began); asleep && took < nap {
					t.Errorf("%s, %q known: it woke up after %v", what, known, took)
				}
			}
		}
	})
}

func TestTheGoroutinesOfOneEngineDoNotObstructEachOther(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.open(t, nil)
		pool.SetMaxOpenConns(8)
		a := actor{Backend: mysql.New(pool).Backend, session: id()}
		require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, TTL: ttl}))
		var obstructed atomic.Int64
		mysql.Patient(a.Backend, func() { obstructed.Add(1) })
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 10 {
					r := a.reader("n")
					grant, taken, err := drivertest.Take(t.Context(), a, r)
					if err != nil || !taken {
						t.Error(taken, err)
						return
					}
					if _, err := drivertest.Release(t.Context(), a, protocol.Held{Name: "n", Session: a.session,
						Token: grant.Token, Shared: true}, false); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := obstructed.Load(); n > 0 {
			t.Fatalf("a row was found locked %d times", n)
		}
	})
}
