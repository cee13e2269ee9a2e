package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
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
		releasing := start(t, a.doing(protocol.Release(held, false, false)))
		reclaiming := start(t, c.doing(protocol.TakeOver(c.session, "n", protocol.Holder{Session: a.session,
			Grant: protocol.Grant{Token: held.Token, Lease: -1}})))
		s.blocked(t, a)
		s.blocked(t, c)
		require.NoError(t, locking.Commit())
		released, reclaimed := <-releasing, <-reclaiming
		if released.err != nil || reclaimed.err != nil || released.value.Done() == reclaimed.value.Done() {
			t.Fatalf("released %+v, reclaimed %+v: one of them must have done it", released, reclaimed)
		}
		require.Equal(t, s.used(t, "n"), 3, "units are left")
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
		writer := a.wait(t, a.request("n"))
		s.expire(t, dead)
		for _, text := range []string{
			"SELECT name FROM dblock_waiters FORCE INDEX (PRIMARY) WHERE name IN ('m', 'o') FOR UPDATE",
			"SELECT name FROM dblock_shares FORCE INDEX (PRIMARY) WHERE name IN ('mr', 'or') FOR UPDATE",
			"SELECT name FROM dblock_locks FORCE INDEX (PRIMARY) WHERE name IN ('m', 'mr', 'o', 'or') FOR UPDATE",
		} {
			s.transaction(t, text)
		}
		got := <-start(t, a.doing(protocol.Release(held, true, false)))
		if got.err != nil || !slices.Equal(attempts(got.value.Next), want) {
			t.Fatalf("%+v, want the readers", got)
		}
		asked := <-start(t, a.doing(protocol.Ask{Name: "n", Event: protocol.Event{Name: "n", Kind: "asked"}}))
		if asked.err != nil || asked.value.Holders != 3 {
			t.Fatalf("%+v", asked)
		}
		var all []protocol.Held
		for _, h := range got.value.Next {
			all = append(all, protocol.Held{Name: "n", Session: h.Session, Token: h.Grant.Token, Shared: true})
		}
		rest := <-start(t, func(ctx context.Context) ([]protocol.Held, error) {
			return drivertest.ReleaseAll(ctx, a, all)
		})
		if rest.err != nil || len(rest.value) != 3 {
			t.Fatalf("%+v, want all of them, since somebody waits", rest)
		}
		var together protocol.Sequence // deletes the shares by one statement
		for _, h := range all {
			together = append(together, protocol.Release(h, true, false))
		}
		last := <-start(t, a.doing(together))
		if last.err != nil || !slices.Equal(attempts(last.value.Next), []string{writer}) {
			t.Fatalf("%+v, want the writer", last)
		}
	})
}

// onSideConn runs what a client does on its reserved connection.
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
			a, name := s.application(t), id()
			e, beside := a.engine, a.beside
			begin := func() *sql.Tx {
				tx, _ := a.begin(t, level)
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
			own := func(string, int, any) bool { return true }
			state, locked, err := e.In(tx).Lock(t.Context(), name, own, true, beside)
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
			result, err := driver.Do(t.Context(), a, protocol.TakeOver(a.session, name, protocol.Holder{}))
			if next, err := sole(result.Next, err); err != nil || next.Attempt != attempt || s.used(t, name) != 3 {
				t.Fatalf("%+v, %v", result, err)
			}
		}
	})
}

func TestEveryShareThatIsHandedIsHeardOf(t *testing.T) {
	const sessions, each1, rounds = 3, 30, 5 // more for one session than it keeps in mind
	each(t, func(t *testing.T, s server) {
		granter := on(t, s.open(t, nil))
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
		does(t, a, protocol.Release(held, true, false))
		sleepLock := id()
		conn, err := s.pool.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.ExecContext(t.Context(), "DO GET_LOCK(?, 0)", sleepLock)
		require.NoError(t, err)
		q := mysqldb.New(mysql.AsWritten(s.open(t, nil)))
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
		a := on(t, pool)
		var obstructed atomic.Int64
		mysql.Patient(a.Backend, func() { obstructed.Add(1) })
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 10 {
					taken, err := driver.Do(t.Context(), a, protocol.Take{Request: a.reader("n")})
					held := protocol.Held{Name: "n", Session: a.session, Token: taken.Grant.Token, Shared: true}
					if err == nil {
						_, err = drivertest.Release(t.Context(), a, held, false)
					}
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		if n := obstructed.Load(); n > 0 {
			t.Fatalf("a row was found locked %d times", n)
		}
	})
}
