package named_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/named"
	"github.com/dblock-go/dblock/internal/sessionlock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Keys are for ever: programs of different versions must agree on them.
func TestNamedKeysAreForEver(t *testing.T) {
	for name, key := range map[string]string{
		"invoice/42":             "dblock/invoice/42",
		"a.b_c:d-e":              "dblock/a.b_c:d-e",
		strings.Repeat("x", 56):  "dblock/" + strings.Repeat("x", 56),
		strings.Repeat("x", 57):  "dblock=vykkevr4z6lj3gnmu2oono3utapxgs57t5sv645y6bw3ndflkilq",
		strings.Repeat("x", 255): "dblock=2itatwr24okwzjehoblkrzma53lujjxx27h2lmm53cgvf7ga2q2q",
		"A":                      "dblock=kwnovuecmtkxsxjzbfyyzxifvpkjk4xij7svleho6mniriep376q",
		"a ":                     "dblock=mwb5zvqfn7jsvloq2lil5eqn5gpw74elqadf4s4rikvkifutshfq",
		"á":                      "dblock=7olxq4m5snkrwhei35prvmrj7a7kgcxrcl6fcal4t4fdqpopnszq",
		"🔒":                      "dblock=nlq5f3roswjoultgkzqukcqj73mv65ssgjgeqaoepkx6mgg27fxq",
		"a'\\":                   "dblock=zhm3xppug6xs2sgg3znm23h5g6zlsbtp7kfi6jklf5ghb6a7nvoa",
		"a+":                     "dblock=qxrabto5r4cwds4iypon7g5pp7q3gy3htqlut3kyxcvnkupjuizq",
	} {
		got := named.Key(name)
		assert.Equal(t, got, key, name)
		if len(got+"+") > 64 || got != strings.ToLower(got) {
			t.Errorf("%q: %q cannot be a named lock, or not with a queue", name, got)
		}
	}
}

func TestNamedValidates(t *testing.T) {
	_, err := named.Open(nil, sessionlock.Config{})
	is(t, err, driver.ErrConfig)
	connector, err := sqldriver.NewConnector(sqldriver.NewConfig())
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	config, err := sessionlock.Configured(nil)
	require.NoError(t, err)
	for n, want := range map[int]error{0: nil, 1: driver.ErrConfig, 2: driver.ErrConfig, 3: nil} {
		db.SetMaxOpenConns(n)
		_, err := named.Open(db, config)
		is(t, err, want)
	}
}

// Broken by taking the lock without a look at the queue, and by a waiter that leaves the queue
// before the lock was taken.
func TestNamedLocksAreServedInOrder(t *testing.T) {
	onStage(t, func(t *testing.T, s stage) {
		one, two, three := s.client(nil), s.client(nil), s.client(nil)
		held := s.lock(one, "n")
		if s.try(one, "n") || s.try(two, "n") {
			t.Error("taken twice")
		}
		var calls []<-chan outcome
		for i, k := range []*sessionlock.Keeper[string]{two, three, one} {
			c, cancel := s.begin(k, "n", int64(i+1))
			defer cancel()
			calls = append(calls, c)
		}
		if s.holder(named.Key(s.name("n"))+"+") == -1 {
			t.Error("they queue elsewhere")
		}
		for i, c := range calls {
			s.unlock(held)
			held = s.granted(c)
			for _, later := range calls[i+1:] {
				if len(later) > 0 {
					t.Error("somebody was passed")
				}
			}
			if s.try(two, "n") {
				t.Error("taken twice")
			}
		}
		s.unlock(held)

		outsider, err := s.pool.Conn(t.Context())
		require.NoError(t, err)
		defer outsider.Close()
		for _, statement := range []string{"DO GET_LOCK('%s+', 0)", "DO RELEASE_LOCK('%s+')"} {
			_, err = outsider.ExecContext(t.Context(), fmt.Sprintf(statement, named.Key(s.name("n"))))
			require.NoError(t, err)
			if got, want := s.try(one, "n"), strings.Contains(statement, "RELEASE"); got != want {
				t.Errorf("after %s TryLock says %v: the lock is free, the queue is not empty or empty", statement, got)
			}
		}
		s.nothingLeft("n")
	})
}

// Broken by handing names to GET_LOCK as they are: to MySQL 'A' is 'a', and 65 characters are too
// many.
func TestNamesOfNamedLocksAreBytes(t *testing.T) {
	onStage(t, func(t *testing.T, s stage) {
		k, other := s.client(nil), s.client(nil)
		long := strings.Repeat("y", 64-len(s.prefix))
		names := []string{"a", "A", "á", "Á", "a ", " a", "ａ", "ß", "ss", "🔒", "🔓", "a'\\\"", "%s", "a\x00", long,
			long + "y", strings.Repeat("z", 220), strings.Repeat("Z", 220)}
		held := make([]sessionlock.Possession, len(names))
		for i, name := range names {
			held[i] = s.lock(k, name)
		}
		for i, name := range names {
			if s.try(other, name) {
				t.Errorf("%q was taken twice", name)
			}
			s.unlock(held[i])
			if !s.try(other, name) {
				t.Errorf("%q is not free", name)
			}
		}
	})
}

// Broken by leaving the end of the wait to the driver, which closes the connection: the server goes
// on waiting. With the pool exhausted, the connection that has the locks must end the wait.
func TestACancelledWaitForANamedLockLeavesNothing(t *testing.T) {
	onStage(t, func(t *testing.T, s stage) {
		one := s.client(nil)
		pool := s.open(nil)
		pool.SetMaxOpenConns(3)
		two := s.keeper(pool)
		held, own := s.lock(one, "n"), s.lock(two, "own")
		three := s.client(nil)
		first, cancelFirst := s.begin(two, "n", 1)
		second, cancelSecond := s.begin(three, "n", 2)
		busy, err := pool.Conn(t.Context())
		require.NoError(t, err)
		defer busy.Close()
		for _, call := range []struct {
			c      <-chan outcome
			cancel context.CancelFunc
			left   int64
		}{{second, cancelSecond, 1}, {first, cancelFirst, 0}} {
			call.cancel()
			is(t, (<-call.c).err, context.Canceled)
			s.waiting(call.left)
		}
		dbtest.Eventually(t, "the queue to be free", func() bool { return s.holder(named.Key(s.name("n"))+"+") == -1 })
		s.unlock(held)
		if !s.try(one, "n") {
			t.Error("somebody has it")
		}
		s.unlock(own) // what was killed was not this
	})
}

// The servers take a waiter out of the queue themselves where its connection broke. Broken by a
// server that keeps the connection of an idle waiter for as long as the pinned connection: one that
// went silent without an end would stay the first of the queue.
func TestAWaiterThatIsCutOffDoesNotStayInTheQueue(t *testing.T) {
	onStage(t, func(t *testing.T, s stage) {
		var set atomic.Int32
		config, err := sqldriver.ParseDSN(s.DSN)
		require.NoError(t, err)
		proxy := dbtest.NewProxy(t, config.Addr)
		k := s.client(func(c *sqldriver.Config) { c.Addr = proxy.Addr() })
		one := s.client(nil)
		own, held := s.lock(k, "own"), s.lock(one, "n")
		c, cancel := s.begin(k, "n", 1)
		defer cancel()
		before := s.waiterOf()
		proxy.Cut()
		proxy.Heal()
		s.lost(own) // which is another matter
		dbtest.Eventually(t, "another connection to wait instead", func() bool {
			after := s.waiterOf()
			return after > 0 && after != before
		})
		s.waiting(1)
		s.unlock(held)
		s.unlock(s.granted(c))

		quick := s.keeper(s.tapped(func(text string) (string, error) {
			if strings.HasPrefix(text, "SET SESSION wait_timeout = 10") {
				set.Add(1)
			}
			return text, nil
		}, false))
		held = s.lock(one, "m")
		c, cancel = s.begin(quick, "m", 1)
		defer cancel()
		s.unlock(held)
		s.unlock(s.granted(c))
		assert.Equal(t, set.Load(), 1, "a waiter that goes silent without an end may stay the first of the queue")
	})
}

// Broken by not watching at all, and by watching with statements.
func TestTheLossOfNamedLocksIsNoticedWithoutTraffic(t *testing.T) {
	onStage(t, func(t *testing.T, s stage) {
		var sent atomic.Int64
		for name, k := range map[string]*sessionlock.Keeper[string]{
			"looking":        s.client(counted(&sent)),
			"no liveness":    s.client(func(c *sqldriver.Config) { c.CheckConnLiveness = false }),
			"wrapped driver": s.keeper(s.tapped(nil, false)),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := stage{s.Database, s.pool, t, s.prefix}
				p, q := s.lock(k, name), s.lock(k, name+"/2")
				pin := s.holder(named.Key(s.name(name)))
				if name == "looking" {
					before := sent.Load()
					dbtest.Eventually(t, "the server to find it idle", func() bool {
						return s.number("SELECT COUNT(*) FROM "+s.Processes()+" WHERE id = ? AND "+
							"command = 'Sleep' AND time >= 1", pin) == 1
					})
					if n := sent.Load() - before; n > 0 {
						t.Errorf("%d bytes were sent to watch a connection", n)
					}
				}
				began := time.Now()
				s.exec(fmt.Sprint("KILL CONNECTION ", pin))
				s.lost(p)
				s.lost(q)
				t.Log(time.Since(began), context.Cause(p.Kept()))
				assert.Error(t, context.Cause(p.Kept()), "no cause")
				is(t, p.Release(t.Context()), driver.ErrNotHeld)
				s.unlock(s.lock(k, name)) // on a new connection
			})
		}
	})
}

// Broken by a waiter for each name: the holder of what they wait for could not go on.
func TestWaitersForNamedLocksLeaveConnectionsToTheWork(t *testing.T) {
	onStage(t, func(t *testing.T, s stage) {
		one := s.client(nil)
		pool := s.open(nil)
		pool.SetMaxOpenConns(5)
		k := s.keeper(pool)
		var held []sessionlock.Possession
		var calls []<-chan outcome
		for i := range 4 {
			held = append(held, s.lock(one, fmt.Sprint(i)))
			c, cancel := s.begin(k, fmt.Sprint(i), int64(min(i+1, 2)))
			defer cancel()
			calls = append(calls, c)
		}
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			work, err := pool.Conn(ctx)
			require.NoError(t, err)
			defer work.Close()
		}
		s.waiting(2)
		for i, c := range calls {
			s.unlock(held[i])
			s.unlock(s.granted(c))
		}
	})
}

// A process is stopped when its waiter has become the first of the queue: what it would send next
// stays with it. Broken by a server that keeps the connection of an idle waiter for as long as any
// other.
func TestAStoppedProcessLosesItsPlaceInTheNamedQueue(t *testing.T) {
	onStage(t, func(t *testing.T, s stage) {
		var short atomic.Int32
		resumed := make(chan struct{})
		stopped := s.keeper(s.tapped(func(text string) (string, error) {
			switch {
			case strings.HasPrefix(text, "SET SESSION wait_timeout = 10"):
				short.Add(1)
				text = strings.Replace(text, "wait_timeout = 10", "wait_timeout = 1", 1)
			case strings.Contains(text, "@@GLOBAL.read_only, GET_LOCK("): // what follows a wait
				<-resumed
			}
			return text, nil
		}, false))
		one, two := s.client(nil), s.client(nil)
		held := s.lock(one, "n")
		c, cancel := s.begin(stopped, "n", 1)
		behind, done := s.begin(two, "n", 2)
		s.unlock(held)
		p := s.granted(behind)
		close(resumed)
		s.unlock(p)
		s.unlock(s.granted(c))
		done()
		cancel()
		if short.Load() == 0 {
			t.Error("no waiter is bounded by 10 s")
		}
		s.nothingLeft("n")
		require.NoError(t, stopped.Close(context.Background()))
	})
}
