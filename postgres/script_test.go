package postgres

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/engines"
	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// script is a connection of the test's own beside the engine under test.
type script struct {
	*testing.T
	*engine
	pool *pgxpool.Pool
	tx   pgx.Tx // open from begin to commit
}

// Run is that of the engine, and not of the test.
func (s *script) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return s.engine.Run(ctx, ops...)
}

func newScript(t *testing.T, settings ...string) *script {
	return newScriptIn(t, dbtest.Warm(t, dbtest.KindPostgres), settings...)
}

// scriptOf is newScript with these sessions.
func scriptOf(t *testing.T, sessions ...string) *script {
	s := newScript(t)
	for _, id := range sessions {
		s.session(id, time.Minute)
	}
	return s
}

// newScriptIn is newScript in a database: in one that dbtest.New has made where pages and plans are
// looked at.
func newScriptIn(t *testing.T, db dbtest.Database, settings ...string) *script {
	config, err := pgxpool.ParseConfig(db.DSN)
	require.NoError(t, err)
	db.Keep(config.ConnConfig)
	for i := 0; i < len(settings); i += 2 {
		config.ConnConfig.RuntimeParams[settings[i]] = settings[i+1]
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return &script{T: t, engine: patient(New(pool)), pool: db.Pool(t)}
}

// patient is an engine that waits for as long as a script takes.
func patient(of engines.Engine[pgx.Tx]) *engine {
	e := inside.Of(of).Backend.(*engine)
	e.lockTimeout = "10s"
	return e
}

func (s *script) session(id string, ttl time.Duration) {
	s.Helper()
	require.NoError(s, s.OpenSession(s.Context(), driver.Session{ID: id, Host: "h", TTL: ttl}))
}

func (s *script) begin() {
	s.Helper()
	tx, err := s.pool.BeginTx(s.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	require.NoError(s, err)
	s.tx = tx
	s.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(s.Context())) })
}

// do runs a generated query in the script's transaction.
func (s *script) do(st statement) {
	s.Helper()
	rows, err := s.tx.Query(s.Context(), st.sql, st.args...)
	require.NoError(s, err)
	rows.Close()
	require.NoError(s, rows.Err())
}

func (s *script) commit() {
	s.Helper()
	require.NoError(s, s.tx.Commit(s.Context()))
}

// blocked starts a call of the engine and returns once it waits for a lock, as the nth of those who
// wait where there are several; the channel closes when it is done.
func (s *script) blocked(call func(), nth ...int64) <-chan struct{} {
	s.Helper()
	waiting := append(nth, 1)[0]
	done := make(chan struct{})
	go func() { defer close(done); call() }()
	deadline := time.After(10 * time.Second)
	for {
		if s.number(
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) >= waiting {
			return done
		}
		select {
		case <-done:
			s.Fatal("the call did not wait")
		case <-deadline:
			s.Fatal("the call neither waits nor ends")
		case <-time.After(time.Millisecond):
		}
	}
}

// behind has a call of the engine wait for the script's transaction, commits that, and returns when
// the call has ended.
func (s *script) behind(call func()) {
	s.Helper()
	done := s.blocked(call)
	s.commit()
	<-done
}

func (s *script) number(sql string, args ...any) (n int64) {
	s.Helper()
	require.NoError(s, s.pool.QueryRow(s.Context(), sql, args...).Scan(&n))
	return n
}

// exec runs a statement in a transaction of its own.
func (s *script) exec(sql string) {
	s.Helper()
	require.NoError(s, require.ErrOf(s.pool.Exec(s.Context(), sql)))
}

func request(session, attempt string) protocol.Request {
	return protocol.Request{Name: "n", Session: session, Host: "h", Thread: attempt, Attempt: attempt, Patient: true}
}

func (s *script) take(r protocol.Request) protocol.Grant {
	s.Helper()
	g, ok, err := drivertest.Take(s.Context(), s, r)
	if err != nil || !ok {
		s.Fatalf("take: %v, %v", ok, err)
	}
	return g
}

func (s *script) enqueue(r protocol.Request) {
	s.Helper()
	if _, outcome, err := drivertest.Join(s.Context(), s, r); err != nil || outcome != protocol.Queued {
		s.Fatalf("enqueue: %v, %v", outcome, err)
	}
}

func (s *script) holder() protocol.Holder {
	s.Helper()
	states, err := s.Read(s.Context(), "nobody", []string{"n"}, 0)
	if err != nil || len(states) != 1 {
		s.Fatalf("look: %v, %v", states, err)
	}
	return states[0].Holder
}

func join(r protocol.Request) statement { return extend("", r) }

func extend(attempt string, r protocol.Request) statement {
	return query(postgresdb.JoinQueue, postgresdb.JoinQueueParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Members: 1, Units: int32(r.Units), Capacity: int32(r.Of), LockTimeout: "10s", Extends: attempt,
		Most: protocol.MaxMembers})
}

func units(of protocol.Request, n, capacity int) protocol.Request {
	of.Units, of.Of = n, capacity
	return of
}

func reader(session, attempt string) protocol.Request {
	return units(request(session, attempt), 1, protocol.Readers)
}

// have takes what must be free.
func (s *script) have(r protocol.Request) protocol.Held {
	s.Helper()
	return protocol.Held{Name: r.Name, Session: r.Session, Token: s.take(r).Token, Shared: r.Units > 0}
}

func (s *script) release(h protocol.Held) {
	s.Helper()
	require.NoError(s, require.ErrOf(drivertest.Release(s.Context(), s, h, false)))
}

// snapshot begins a transaction that sees the database as it is now, above READ COMMITTED for as
// long as it lasts.
func (s *script) snapshot(level pgx.TxIsoLevel) pgx.Tx {
	s.Helper()
	tx, err := s.pool.BeginTx(s.Context(), pgx.TxOptions{IsoLevel: level})
	require.NoError(s, err)
	s.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(s.Context())) })
	require.NoError(s, require.ErrOf(tx.Exec(s.Context(), "SELECT count(*) FROM dblock_locks")))
	return tx
}

func takeShare(r protocol.Request) statement {
	return query(postgresdb.TakeShare, postgresdb.TakeShareParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Units: int32(r.Units), Capacity: int32(r.Of), LockTimeout: "10s"})
}

// went checks to whom a name was handed on.
func (s *script) went(next []protocol.Handoff, contended bool, attempts ...string) {
	s.Helper()
	if len(next) != len(attempts) {
		s.Fatalf("handed on to %+v, want %q", next, attempts)
	}
	for i, n := range next {
		if n.Attempt != attempts[i] || n.Grant.Contended != contended || i > 0 &&
			n.Grant.Token <= next[i-1].Grant.Token {
			s.Fatalf("hand-off %d of %+v, want %q, contended %v", i, next, attempts[i], contended)
		}
	}
}

// sound checks that what is counted in the rows of names is what there is, and that nobody waits
// who fits.
func (s *script) sound() {
	s.Helper()
	if n := s.number(`SELECT count(*) FROM dblock_locks l
		LEFT JOIN LATERAL (SELECT units, capacity FROM dblock_waiters w WHERE w.name = l.name ORDER BY ticket LIMIT 1) head ON true
		WHERE shared_units <> (SELECT coalesce(sum(units), 0) FROM dblock_shares h WHERE h.name = l.name)
		   OR waiters <> (SELECT coalesce(sum(members), 0) FROM dblock_waiters w WHERE w.name = l.name)
		   OR EXISTS (SELECT FROM dblock_waiters w WHERE w.name = l.name AND w.ticket < l.first_ticket)
		   OR shared_units > 0 AND session_id IS NOT NULL
		   OR shared_units > 0 AND l.capacity <> (SELECT min(h.capacity) FROM dblock_shares h WHERE h.name = l.name)
		   OR mixed <> (SELECT count(DISTINCT h.capacity) > 1 FROM dblock_shares h WHERE h.name = l.name)
		   OR token < (SELECT coalesce(max(token), 0) FROM dblock_shares h WHERE h.name = l.name)
		   OR session_id IS NOT NULL AND NOT (first_token <= last_token AND last_token <= l.token)
		   OR session_id IS NULL AND rests_until < dblock_now()
		      AND (shared_units = 0 AND head.units IS NOT NULL OR head.units > 0 AND shared_units + head.units <= least(l.capacity, head.capacity))`); n != 0 {
		s.Errorf("%d names are counted wrongly, or keep somebody waiting", n)
	}
}

// does runs a transition of n in the script's transaction.
func (s *script) does(transition func(n *protocol.Name) error) {
	s.Helper()
	x := pgxTx{s.tx}
	src := &source{ctx: s.Context(), tx: x, name: "n"}
	require.NoError(s, x.exec(s.Context(), src.open(query(postgresdb.LockRow, "n"), nil)...))
	n := src.read()
	require.NoError(s, transition(n))
	require.NoError(s, x.exec(s.Context(), append(write(n, postgresdb.AddEvent), tell(n, false))...))
}

// leaves has something leave n in the script's transaction.
func (s *script) leaves(r protocol.Removal) {
	s.Helper()
	s.does(func(n *protocol.Name) error {
		left, err := r.Apply(n)
		if err == nil && !left.Done() {
			err = driver.ErrNotHeld
		}
		return err
	})
}

func (s *script) upgrade(h protocol.Held, attempt string) (protocol.Grant, bool, error) {
	result, err := driver.Do(s.Context(), s, protocol.Upgrade{Held: h, Attempt: attempt})
	return result.Grant, result.Done(), err
}

func (s *script) downgrade(h protocol.Held) ([]protocol.Handoff, error) {
	result, err := driver.Do(s.Context(), s, protocol.Downgrade{Held: h})
	return result.Next, err
}
