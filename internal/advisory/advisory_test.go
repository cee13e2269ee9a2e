package advisory

import (
	"context"
	"errors"
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

// Broken by a pinned connection on which nothing reads while it is idle.
func TestTheEndOfTheAdvisoryConnectionIsNoticed(t *testing.T) {
	s := newStage(t)
	one, two := s.client(), s.client()
	p, q := s.lock(one, "a", alone), s.lock(one, "b", shared)
	waits, own := s.begin(two, "a", alone, 1), s.begin(one, "b", alone, 2)
	dbtest.Eventually(s, "the connection to come to rest", func() bool {
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

// Broken by an unlock that does not look at what the server says. Package sessionlock has what
// follows of it.
func TestAnUnlockThatTheServerDeniesIsNone(t *testing.T) {
	s := newStage(t)
	p, err := server{pool: s.pool()}.Pin(t.Context())
	require.NoError(t, err)
	defer p.Close()
	for _, mode := range []bool{alone, shared} {
		for _, c := range []struct {
			kind sessionlock.Kind
			want bool
		}{{sessionlock.Take, true}, {sessionlock.Give, true}, {sessionlock.Give, false}} {
			op := &sessionlock.Op[keys]{Kind: c.kind, Key: keysOf("n"), Shared: mode}
			require.NoError(t, p.Do(t.Context(), []*sessionlock.Op[keys]{op}))
			require.Equal(t, op.OK, c.want, c.kind, mode)
		}
	}
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
		dbtest.Eventually(s, "the waiters to leave nothing", func() bool { return locks() == 1 && s.waiters() == 0 })
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
	dbtest.Eventually(s, "it to wait for longer", func() bool {
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
	dbtest.Eventually(s, "two connections of the library's beside the pool's", func() bool {
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

// Broken by sending the release a second time: by then the lock is another holder's, on the same
// connection.
func TestToReleaseAnAdvisoryLockAgainFreesNobodyElses(t *testing.T) {
	s := newStage(t)
	k := s.client()
	first := s.lock(k, "n", alone)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = first.Release(ended) // it may or may not hear the answer
	again := s.lock(k, "n", alone)
	s.unlock(first)
	if s.free(s.client(), "n", alone) {
		t.Error("another client got a lock that is held")
	}
	s.unlock(again)
}

// A process is stopped when its waiter has become the first of the queue. PostgreSQL 13 has no
// idle_session_timeout: it plays no part here. Broken by keeping a place in the queue outside a
// transaction.
func TestAStoppedProcessLosesItsPlaceInTheAdvisoryQueue(t *testing.T) {
	s := newStage(t)
	stopped, err := server{pool: s.pool()}.Waiter(t.Context())
	require.NoError(t, err)
	defer stopped.Close()
	require.NoError(t, stopped.Wait(t.Context(), keysOf("n"), alone))
	conn := stopped.(*waiter).conn
	has, err := simple(t.Context(), conn,
		"SELECT current_setting('idle_in_transaction_session_timeout') || coalesce(' ' || "+
			"current_setting('idle_session_timeout', true), '')")
	if err != nil || has[0] != "10s 0" && has[0] != "10s" {
		t.Errorf("the timeouts are %q, %v", has, err)
	}
	behind := s.begin(s.client(), "n", alone, 1)
	require.NoError(t, require.ErrOf(simple(t.Context(), conn, "SET idle_in_transaction_session_timeout = '1ms'")))
	began := time.Now()
	s.unlock(s.granted(behind))
	t.Logf("it held up the next one for %v", time.Since(began))
}

// A wait that is cancelled, and one that is repeated on the same connection, leave no transaction
// open.
func TestAnAdvisoryWaiterLeavesNoTransactionOpen(t *testing.T) {
	s := newStage(t)
	w, err := server{pool: s.pool()}.Waiter(t.Context())
	require.NoError(t, err)
	defer w.Close()
	conn := w.(*waiter).conn
	for range 2 {
		for range 2 { // as the first of the queue it may have to wait for the lock again
			require.NoError(t, w.Wait(t.Context(), keysOf("n"), alone))
			assert.Equal(t, conn.PgConn().TxStatus(), 'T', "a place in the queue with status")
		}
		require.NoError(t, w.Leave(t.Context(), keysOf("n")))
		assert.Equal(t, conn.PgConn().TxStatus(), 'I', "no place in the queue, and status")
	}
}
