//go:build unix

package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/fence"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/observe"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

const (
	branches  = 3 // clients of the application, each with a pool of its own
	employees = 4 // goroutines of each client
	conns     = 12

	refusal = "dblock_refuses_one" // the constraint that refuses the name refused
	refused = "refused"
)

// application is one process with several clients, whose goroutines lock, write and release in
// transactions of every kind.
type application struct {
	*world
	names    []string
	branches []*branch
	places   places
	*judge
}

// branch is a client of the application.
type branch struct {
	*application
	*dblock.Client[*sql.Tx]
	pool   *sql.DB
	native *native       // nil: SQLite
	proxy  *dbtest.Proxy // nil: SQLite
	log    *valve
}

// applicationRound has the application work under faults, and looks at what that has left.
func applicationRound(w *world) {
	a := newApplication(w)
	defer a.close()
	ctx, stop := context.WithTimeout(w.Context(), w.length)
	defer stop()
	var work sync.WaitGroup
	for i, b := range a.branches {
		for j := range employees {
			c := &employee{b, rand.New(rand.NewPCG(w.random.Uint64(), 0)), fmt.Sprint(i, "/", j)}
			work.Go(func() { c.work(ctx) })
		}
	}
	work.Go(func() { a.kill(ctx) })
	work.Go(func() { a.stray(ctx) })
	work.Go(func() { a.count(ctx) })
	a.disturb(ctx)
	work.Wait()
	a.decide()
	a.lateWrites()
	a.lostUpdates()
	a.leftInTables()
	a.leftElsewhere()
	a.leftOnConnections()
}

func newApplication(w *world) *application {
	w.Helper()
	a := &application{world: w, names: []string{"a", "b"}, judge: &judge{world: w}}
	a.places = a.twoPlaces()
	w.exec("CREATE TABLE writes (name varchar(64) NOT NULL, token bigint NOT NULL)")
	require.NoError(w, migrate.Up(w.Context(), w.sql, w.db.Engine, migrate.Fences, migrate.Versions))
	w.exec(refuseOne(w.db.Kind))
	for range branches {
		b := &branch{application: a, log: newValve()}
		db := w.db
		if db.Kind != dbtest.KindSQLite {
			b.proxy = w.proxy()
			db = db.Through(w, b.proxy)
		}
		b.pool = db.SQL(w)
		b.native = openNative(w, db, b.log)
		b.pool.SetMaxOpenConns(conns)
		b.pool.SetMaxIdleConns(conns)
		engine := engineOf(db.Kind, b.pool)
		if bug := bugs[w.bug]; bug != nil {
			engine = fakedb.Through(engine, bug(w.sql))
		}
		switch w.bug {
		case bugLooksElsewhere:
			engine = fakedb.Through(engine, takesFrom(inside.Of(a.places.engine(b.pool)).Backend))
		case bugBelievesTx:
			of := inside.Of(engine)
			in := of.In
			of.In = func(tx *sql.Tx) driver.Tx { return credulous{in(tx)} }
			engine = *inside.Make[dblock.Engine[*sql.Tx]](of)
		}
		observer := observe.Observer{HoldEnd: func(observe.HoldResult) { b.log.pass() }}
		client, err := dblock.New(engine, dblock.WithTTL(ttl), dblock.WithLogger(slog.New(b.log)),
			dblock.WithObserver(observer))
		require.NoError(w, err)
		b.Client = client
		require.NoError(w, client.CheckSchema(w.Context())) // it has seen where its tables are
		a.branches = append(a.branches, b)
	}
	return a
}

// refuseOne makes a database refuse a lock of one name.
func refuseOne(kind string) string {
	if kind == dbtest.KindSQLite {
		return "CREATE TRIGGER " + refusal + " BEFORE INSERT ON dblock_locks WHEN CAST(NEW.name AS TEXT) = '" +
			refused +
			"' BEGIN SELECT RAISE(ABORT, '" + refusal + "'); END"
	}
	return "ALTER TABLE dblock_locks ADD CONSTRAINT " + refusal + " CHECK (name <> '" + refused + "')"
}

func engineOf(kind string, db *sql.DB) dblock.Engine[*sql.Tx] {
	switch kind {
	case dbtest.KindPostgres:
		return postgres.NewSQL(db)
	case dbtest.KindSQLite:
		return sqlite.New(db)
	}
	return mysql.New(db)
}

func (a *application) close() {
	for _, b := range a.branches {
		b.log.set(true)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_ = b.Close(ctx)
		if b.native != nil {
			_ = b.native.close(ctx)
		}
		cancel()
	}
}

// employee is a goroutine of the application.
type employee struct {
	*branch
	random *rand.Rand
	thread string // of the owner that it names at times
}

// work does one errand after the other until ctx ends. No errand takes longer than its own time.
func (c *employee) work(ctx context.Context) {
	errands := []func(ctx context.Context) error{
		c.plain, c.plain, c.shared, c.releaseInTx, c.releaseInTx, c.releaseBesideGuard, c.lockInTx, c.lockInTx,
		c.conditional, c.ask, c.lockTooLate, c.useTooLate, c.lockNative, c.lockNativeInTx,
	}
	switch c.bug { // there is one errand that shows it
	case bugNoBump:
		errands = []func(ctx context.Context) error{c.conditional}
	case bugNoLockTx:
		errands = []func(ctx context.Context) error{c.lockInTx}
	case bugNoAdvisory:
		errands = []func(ctx context.Context) error{c.lockNativeInTx}
	case bugUnlocksEarly:
		errands = []func(ctx context.Context) error{c.releaseInTx}
	case bugLogsFirst:
		errands = []func(ctx context.Context) error{c.plain}
	}
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(context.Background(), 2*ttl)
		if c.bug == bugBorrows {
			_, _ = c.pool.ExecContext(within, borrowed[c.db.Engine])
		}
		err := errands[c.random.IntN(len(errands))](within)
		cancel()
		c.tried("errands", 1)
		c.explain("", err)
		if err != nil {
			c.busy() // an application whose network is away does not try without a pause
		}
	}
}

func (c *employee) unlock(l *dblock.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c.explain("", l.Unlock(ctx))
}

func (c *employee) name() string { return c.names[c.random.IntN(len(c.names))] }

// brief is how long a context lasts that ends at any moment. A seeded bug needs time to show.
func (c *employee) brief(most time.Duration) time.Duration {
	if c.bug != "" {
		return ttl
	}
	return time.Duration(c.random.Int64N(int64(most)))
}

// busy is for how long a employee does something else.
func (c *employee) busy() { pass(time.Duration(c.random.Int64N(int64(4 * time.Millisecond)))) }

// plain writes under the lock, in a guarded transaction.
func (c *employee) plain(ctx context.Context) error {
	name := c.name()
	l, err := c.Lock(ctx, name)
	if err != nil {
		return err
	}
	leave := c.believe(name, l.Context(), portion{})
	if c.bug == bugLogsFirst { // to be held when a session ends, with others waiting
		within, cancel := context.WithTimeout(l.Context(), 2*ttl)
		<-within.Done()
		cancel()
	}
	err = c.within(ctx, func(tx *sql.Tx) error { return c.write(ctx, tx, l) })
	leave()
	c.unlock(l)
	return err
}

// shared has one name with readers and writers, or units of a semaphore.
func (c *employee) shared(ctx context.Context) error {
	name, p := readName, reader
	switch {
	case c.random.IntN(2) == 0:
		name, p = permitsName, portion{1 + c.random.IntN(2), fewPermits}
	case c.random.IntN(4) == 0:
		p = portion{}
	}
	l, err := c.Lock(ctx, name, p.options()...)
	if err != nil {
		return err
	}
	leave := c.believe(name, l.Context(), p)
	c.busy()
	leave()
	c.unlock(l)
	return nil
}

// releaseInTx writes and releases in one transaction, and then asks for the name again under the
// lock's own context, or as the same owner. It believes in the lock until the commit.
func (c *employee) releaseInTx(ctx context.Context) error {
	name := c.name()
	var options []dblock.LockOption
	if c.random.IntN(3) == 0 {
		options = append(options, dblock.Owner("application", c.thread))
	}
	l, err := c.Lock(ctx, name, options...)
	if err != nil {
		return err
	}
	leave := c.believe(name, l.Context(), portion{})
	defer leave()
	undone := errors.New("rolled back")
	err = c.within(ctx, func(tx *sql.Tx) error {
		if c.bug == bugUnlocksEarly {
			leave()
			c.unlock(l)
			return c.write(ctx, tx, l)
		}
		if err := c.write(ctx, tx, l); err != nil {
			return err
		}
		if err := c.UnlockTx(ctx, tx, l); err != nil { // it is not released: the context says for how long
			c.linger(l)
			return err
		}
		leave()
		if c.random.IntN(4) == 0 {
			return undone
		}
		return nil
	})
	leave()
	under, cancel := context.WithTimeout(l.Context(), ttl/10)
	defer cancel()
	if options != nil {
		under, cancel = context.WithTimeout(ctx, ttl/10)
		defer cancel()
	}
	again, nested := l, error(nil)
	if c.bug != bugReenters {
		again, nested = c.Lock(under, name, options...)
	}
	if nested == nil {
		leave := c.believe(name, again.Context(), portion{})
		c.busy()
		leave()
		c.unlock(again)
	}
	c.explain("", nested)
	c.unlock(l)
	if err == undone {
		return nil
	}
	return err
}

// linger goes on under a lock for a while, unless that ends.
func (c *employee) linger(l *dblock.Lock) {
	within, cancel := context.WithTimeout(l.Context(), ttl/4)
	defer cancel()
	<-within.Done()
}

// lockTooLate locks in a transaction that has ended.
func (c *employee) lockTooLate(ctx context.Context) error {
	return c.ended(ctx, func(tx *sql.Tx) error { return c.LockTx(ctx, tx, c.name()) })
}

// useTooLate guards a transaction that has ended, or releases in it.
func (c *employee) useTooLate(ctx context.Context) error {
	l, err := c.Lock(ctx, c.name())
	if err != nil {
		return err
	}
	defer c.unlock(l)
	use := c.Client.Guard
	if c.random.IntN(2) == 0 {
		use = c.UnlockTx
	}
	return c.ended(ctx, func(tx *sql.Tx) error { return use(ctx, tx, l) })
}

// ended has a call fail in a transaction that is none any more: a statement of the application's
// has ended it, and database/sql does not know.
func (c *employee) ended(ctx context.Context, call func(tx *sql.Tx) error) error {
	tx, err := c.pool.BeginTx(ctx, nil)
	if err != nil {
		return own{err}
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "ROLLBACK"); err != nil {
		return own{err}
	}
	if err = call(tx); err == nil {
		c.Errorf("%s: a transaction that had ended was believed in", zombies)
	}
	return err
}

// releaseBesideGuard releases in one transaction while another one, which the lock guards, is open.
func (c *employee) releaseBesideGuard(ctx context.Context) error {
	name := c.name()
	l, err := c.Lock(ctx, name)
	if err != nil {
		return err
	}
	leave := c.believe(name, l.Context(), portion{})
	err = c.within(ctx, func(guarded *sql.Tx) error {
		if err := c.write(ctx, guarded, l); err != nil {
			return err
		}
		leave()
		if c.db.Kind == dbtest.KindSQLite {
			return nil // there is one writer at a time
		}
		err := c.within(ctx, func(tx *sql.Tx) error { return c.UnlockTx(ctx, tx, l) })
		for range 5 {
			c.busy()
		}
		c.explain("", err)
		return nil
	})
	leave()
	c.unlock(l)
	return err
}

// lockInTx locks in a transaction whose context ends at any moment.
func (c *employee) lockInTx(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, c.brief(20*time.Millisecond))
	defer cancel()
	name := c.name()
	tx, err := c.pool.BeginTx(within, nil)
	if err != nil {
		return own{err}
	}
	defer tx.Rollback()
	if c.bug != bugNoLockTx {
		if err := c.LockTx(within, tx, name); err != nil {
			return err
		}
	}
	leave := c.believe(name, within, portion{})
	defer leave()
	c.busy()
	leave()
	if err := tx.Commit(); err != nil {
		return own{err}
	}
	return nil
}

// conditional uses the packages without a client in a transaction whose context ends at any moment,
// and writes a row with the version that it has read.
func (c *employee) conditional(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, c.brief(40*time.Millisecond))
	defer cancel()
	return c.within(within, func(tx *sql.Tx) error {
		if c.places.home != "" { // another place has no such tables
			if _, err := tx.ExecContext(within, c.places.home); err != nil {
				return own{err}
			}
		}
		name := c.name()
		version, err := optimistic.Read(within, tx, name)
		if err == nil && c.bug != bugNoBump {
			err = optimistic.Bump(within, tx, name, version)
		}
		if err == nil {
			_, err = tx.ExecContext(within, fmt.Sprintf("INSERT INTO %s (name, token) VALUES ('%s%s', %d)",
				c.places.writes, versionOf, name, version))
		}
		if err == nil {
			err = fence.Check(within, tx, "till", time.Now().UnixMicro())
		}
		if err != nil { // a conflict, a stale token, a lock of the server's: what the application lives with
			return own{err}
		}
		c.tried("versions", 1)
		return nil
	})
}

// ask asks for the name that the database refuses.
func (c *employee) ask(ctx context.Context) error {
	l, err := c.TryLock(ctx, refused)
	if err == nil {
		c.Errorf("%s: %q was granted", surprises, refused)
		c.unlock(l)
		return nil
	}
	c.explain(refused, err)
	return nil
}

// within runs f in a transaction.
func (c *employee) within(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := c.pool.BeginTx(ctx, nil)
	if err != nil {
		return own{err}
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return own{err}
	}
	return nil
}

// write writes a row with the lock's token in a guarded transaction, and notes how many rows with
// lower tokens it has seen there. No other may come later.
func (c *employee) write(ctx context.Context, tx *sql.Tx, l *dblock.Lock) error {
	if c.bug != bugUnguarded && c.bug != bugUnlocksEarly {
		if err := c.Client.Guard(ctx, tx, l); err != nil {
			return err
		}
	}
	c.busy()
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (name, token) VALUES ('%s', %d)", c.places.writes,
		l.Name(), l.Token())); err != nil {
		return own{err}
	}
	var seen int
	if err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE name = '%s' AND token < %d",
		c.places.writes, l.Name(), l.Token())).Scan(&seen); err != nil {
		return own{err}
	}
	c.wrote(l.Name(), l.Token(), seen)
	return nil
}
