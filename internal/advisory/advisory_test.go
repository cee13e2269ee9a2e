package advisory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/sessionlock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/transaction"
)

const (
	alone  = false
	shared = true
)

// Keys are for ever: programs of different versions must agree on them.
func TestAdvisoryKeysStayWhatTheyAre(t *testing.T) {
	for name, want := range map[string][2]int64{
		"":           {7136387261357943254, -5324319660990513058},
		"invoice/42": {976884835182815433, -7818576566991066065},
		"naïve 🔒":    {-3979270648660365890, -6007936915922455109},
	} {
		assert.Equal(t, [2]int64{Key(name), QueueKey(name)}, want, name)
	}
}

func TestAnAdvisoryLockIsWhatItsKeySays(t *testing.T) {
	s := newStage(t)
	k, psql := s.client(), s.stranger()
	try := func() (taken bool) {
		require.NoError(t, psql.QueryRow(t.Context(), "SELECT pg_try_advisory_lock($1)", Key("n")).Scan(&taken))
		return taken
	}
	p := s.lock(k, "n", alone)
	if try() {
		t.Error("psql has it too")
	}
	s.unlock(p)
	if !try() {
		t.Error("it was not given back")
	}
	if s.free(k, "n", alone) || s.free(k, "n", shared) {
		t.Error("psql has it")
	}
	waits := s.begin(k, "n", alone, 1)
	s.exec(psql, "SELECT pg_advisory_unlock($1)", Key("n"))
	s.unlock(s.granted(waits))
}

func TestAdvisoryLocksOfTwoClientsComeInTurn(t *testing.T) {
	s := newStage(t)
	one, two := s.client(), s.client()
	p := s.lock(one, "n", alone)
	calls := []*attempt{s.begin(two, "n", alone, 1), s.begin(one, "n", alone, 2)}
	for i := range 4 {
		s.unlock(p)
		p = s.granted(calls[0])
		s.still(calls[1])
		s.waiting(1)
		calls = append(calls[1:], s.begin([]keeper{two, one}[i%2], "n", alone, 2))
	}
	for _, c := range calls {
		s.unlock(p)
		p = s.granted(c)
	}
	s.unlock(p)
}

func TestTryDoesNotPassTheAdvisoryQueue(t *testing.T) {
	s := newStage(t)
	one, two, three := s.client(), s.client(), s.client()
	p := s.lock(one, "n", shared)
	if !s.free(two, "n", shared) {
		t.Error("a share excludes a share")
	}
	waits := s.begin(two, "n", alone, 1)
	for i, k := range []keeper{one, two, three} {
		if s.free(k, "n", shared) {
			t.Errorf("client %d went past a waiter", i+1)
		}
	}
	s.unlock(p)
	s.unlock(s.granted(waits))
	for i, k := range []keeper{one, two, three} {
		if !s.free(k, "n", alone) {
			t.Errorf("client %d: it has no holder and no waiter", i+1)
		}
	}
}

func TestManyGoroutinesHaveOneAdvisoryWaiter(t *testing.T) {
	s := newStage(t)
	one, two := s.client(), s.client()
	p := s.lock(one, "n", alone)
	var all sync.WaitGroup
	order := make(chan int, 20)
	for range 20 {
		all.Go(func() {
			q, _, err := two.Acquire(t.Context(), "n", alone, true)
			if err != nil {
				t.Error(err)
				return
			}
			order <- 1
			s.unlockLater(q)
		})
	}
	s.waiting(1)
	// One for the locks of each, and one to wait. Those that proved that there is no pooler may
	// still be on their way out.
	s.eventually("20 goroutines that wait have more connections, or fewer, than one for locks and one to wait",
		func() bool { return s.connections() == 3 })
	s.unlock(p)
	all.Wait()
	assert.Equal(t, len(order), 20, "were granted")
}

func (s *stage) unlockLater(p sessionlock.Possession) {
	assert.NoError(s, p.Release(context.Background()))
}

func (s *stage) connections() int {
	s.Helper()
	return s.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> " +
		"pg_backend_pid()")
}

func TestAThousandAdvisoryLocksAreOnOneConnection(t *testing.T) {
	s := newStage(t)
	k := s.client()
	const n = 1000
	var all sync.WaitGroup
	for worker := range 10 {
		all.Go(func() {
			for i := worker; i < n; i += 10 {
				if _, ok, err := k.Acquire(t.Context(), fmt.Sprint(i), i%2 == 0, true); !ok {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	const held = " FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM " +
		"pg_database WHERE datname = current_database())"
	if locks, backends := s.count("SELECT count(*)"+held), s.count("SELECT count(DISTINCT pid)"+held); locks != n ||
		backends != 1 {
		t.Errorf("%d locks on %d connections", locks, backends)
	}
	s.eventually("there is more than one connection", func() bool { return s.connections() == 1 })
	assert.NoError(t, k.Close(t.Context()))
	s.eventually("Close left locks", func() bool { return s.count("SELECT count(*)"+held) == 0 })
}

// Broken by a pinned connection on which nothing reads while it is idle.
func TestTheEndOfTheAdvisoryConnectionIsNoticed(t *testing.T) {
	s := newStage(t)
	one, two := s.client(), s.client()
	p, q := s.lock(one, "a", alone), s.lock(one, "b", shared)
	waits, own := s.begin(two, "a", alone, 1), s.begin(one, "b", alone, 2)
	s.eventually("the connection does not come to rest", func() bool {
		return s.count(`SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l USING (pid) WHERE datname = current_database() AND granted
			AND locktype = 'advisory' AND state = 'idle' AND now() - state_change > '300ms' AND `+keyIs, Key("a")) == 1
	})
	start := time.Now()
	s.exec(s.outside, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE granted AND locktype = 'advisory' AND "+
		keyIs, Key("a"))
	for _, p := range []sessionlock.Possession{p, q} {
		select {
		case <-p.Kept().Done():
		case <-time.After(10 * time.Second):
			t.Fatal("not noticed")
		}
		assert.Error(t, context.Cause(p.Kept()), "no cause")
		assert.ErrorIs(t, p.Release(t.Context()), driver.ErrNotHeld, "unlock")
	}
	t.Logf("noticed after %v", time.Since(start))
	s.unlock(s.granted(waits))
	s.unlock(s.granted(own)) // on a new connection
}

const keyIs = `database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND (classid::int8 << 32 | objid::int8) = $1`

// spied lets the test do things on the connection that has the locks.
type spied struct {
	server
	before chan string
}

type spiedPin struct {
	*pin
	before chan string
}

func (s spied) Pin(ctx context.Context) (sessionlock.Pin[keys], error) {
	p, err := s.server.Pin(ctx)
	if err != nil {
		return nil, err
	}
	return spiedPin{p.(*pin), s.before}, nil
}

func (p spiedPin) Run(ctx context.Context, ops []*sessionlock.Op[keys]) error {
	select {
	case sql := <-p.before:
		if _, err := simple(ctx, p.conn, sql); err != nil {
			return err
		}
	default:
	}
	return p.pin.Run(ctx, ops)
}

// Broken by an unlock that does not look at what the server says.
func TestAnUnlockThatTheServerDeniesEndsTheConnection(t *testing.T) {
	s := newStage(t)
	spy := spied{server{pool: s.pool()}, make(chan string, 1)}
	k := sessionlock.New(spy, slog.New(slog.DiscardHandler), absence)
	defer k.Close(t.Context())
	p, q := s.lock(k, "a", alone), s.lock(k, "b", alone)
	spy.before <- "SELECT pg_advisory_unlock_all()"
	assert.ErrorIs(t, p.Release(t.Context()), driver.ErrNotHeld, "unlock")
	<-q.Kept().Done()
	assert.ErrorIs(t, q.Release(t.Context()), driver.ErrNotHeld, "unlock")
	s.eventually("the connection is still there", func() bool { return s.connections() == 0 })
	s.unlock(s.lock(k, "b", alone))
}

// Broken by leaving out the request to cancel: the server would go on waiting, and would then have
// the queue.
func TestAnAdvisoryWaiterThatGivesUpLeavesNothing(t *testing.T) {
	s := newStage(t)
	one, two := s.client(), s.client()
	p := s.lock(one, "n", alone)
	locks := func() int {
		return s.count("SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE locktype = " +
			"'advisory' AND datname = current_database()")
	}
	for _, mode := range []bool{alone, shared} {
		gone := s.begin(two, "n", mode, 1) // first of the queue
		behind := s.client()
		next := s.begin(behind, "n", mode, 2)
		start := time.Now()
		next.cancel()
		<-next.done
		s.waiting(1)
		gone.cancel()
		<-gone.done
		if took := time.Since(start); took > transaction.Grace/2 {
			t.Errorf("it took %v, as if the server had not been asked", took)
		}
		if !errors.Is(gone.err, context.Canceled) || !errors.Is(next.err, context.Canceled) {
			t.Errorf("%v, %v", gone.err, next.err)
		}
		s.eventually("something of the waiters is left", func() bool { return locks() == 1 && s.waiters() == 0 })
	}
	s.unlock(p)
	if !s.free(two, "n", alone) {
		t.Error("nobody has it")
	}
}

// Broken by leaving the application's settings on the connections.
func TestTheApplicationsTimeoutsAreNotForAdvisoryLocks(t *testing.T) {
	s := newStage(t)
	settings := []string{"statement_timeout", "100ms", "idle_session_timeout", "100ms",
		"idle_in_transaction_session_timeout", "100ms"}
	if s.count("SELECT current_setting('server_version_num')::int") >= 170000 {
		settings = append(settings, "transaction_timeout", "100ms")
	}
	s.exec(s.outside,
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = 100', current_database()); END $$`)
	one, two := s.client(settings...), s.client(settings...)
	p := s.lock(one, "n", alone)
	waits := s.begin(two, "n", alone, 1)
	s.eventually("it does not wait that long", func() bool {
		return s.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = "+
			"'advisory' AND now() - query_start > '400ms'") == 1
	})
	s.unlock(p)
	s.unlock(s.granted(waits))
}

func TestAdvisoryConnectionsAreOpenedAsThePoolOpensThem(t *testing.T) {
	s := newStage(t)
	var mu sync.Mutex
	before, after := 0, 0
	config, err := pgxpool.ParseConfig(s.db.DSN)
	require.NoError(t, err)
	config.MaxConns = 1
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		mu.Lock()
		defer mu.Unlock()
		before++
		c.RuntimeParams["application_name"] = "hooked"
		return nil
	}
	config.AfterConnect = func(context.Context, *pgx.Conn) error {
		mu.Lock()
		defer mu.Unlock()
		after++
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	busy, err := pool.Acquire(t.Context()) // all of its budget
	require.NoError(t, err)
	defer busy.Release()
	k := s.open(pool)
	p := s.lock(k, "n", alone)
	waits := s.begin(k, "n", alone, 1)
	// a third looked for a pooler, and may be on its way out
	s.eventually("there are not two connections of the library's beside the pool's", func() bool {
		return s.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "+
			"application_name IN ('hooked', 'dblock')") == 3
	})
	if before != 4 || after != 4 {
		t.Errorf("%d and %d calls of its hooks", before, after)
	}
	s.unlock(p)
	s.unlock(s.granted(waits))
}

func TestANilPoolIsRefused(t *testing.T) {
	assert.ErrorIs(t, assert.ErrOf(New(nil, sessionlock.Config{})), driver.ErrConfig)
}

// A server of the test's own: first its table of locks is full, and then it becomes a standby.
//
// Broken by keeping the queue's lock when the lock itself does not fit.
func TestAFullTableOfLocksAndAStandby(t *testing.T) {
	server := dbtest.OwnPostgres(t)
	s := stageOn(t, server.Empty(t))
	k, psql := s.client(), s.stranger()
	p := s.lock(k, "n", alone)
	if _, err := psql.Exec(t.Context(),
		"SELECT pg_advisory_lock(i) FROM generate_series(1, 1000000) i"); pgserver.State(err) != pgserver.OutOfMemory {
		t.Fatalf("they all fit: %v", err)
	}
	for i := range 3 { // at first not even the queue's lock fits, and then not the lock
		if _, ok, err := k.Acquire(t.Context(), "m", alone, true); ok || !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("%v, %v", ok, err)
		}
		if n := s.count("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid <> $1",
			psql.PgConn().PID()); n != 1 {
			t.Errorf("the client has %d locks", n)
		}
		if i == 1 {
			s.exec(psql, "SELECT pg_advisory_unlock(1)")
		}
	}
	s.exec(psql, "SELECT pg_advisory_unlock_all()")
	s.unlock(s.lock(k, "m", alone))
	s.unlock(p)

	s.exec(s.outside, "CHECKPOINT")
	s.exec(s.outside,
		`DO $$ BEGIN EXECUTE format('COPY (SELECT 1 WHERE false) TO %L', current_setting('data_directory') || '/standby.signal'); END $$`)
	server.Kill()
	server.Start()
	standby, err := pgxpool.New(t.Context(), server.DSN)
	require.NoError(t, err)
	defer standby.Close()
	_, _, err = s.open(standby).Acquire(t.Context(), "n", alone, true)
	if !errors.Is(err, driver.ErrReadOnly) || !errors.Is(err, errStandby) || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("on a standby: %v", err)
	}
	if s.seen, err = pgx.Connect(t.Context(), s.db.DSN); err != nil {
		t.Fatal(err)
	}
}
