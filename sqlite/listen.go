package sqlite

import (
	"context"
	"database/sql"
	"reflect"
	"sync"
	"time"
)

const (
	// lookInterval is how often a listener asks a connection whether anything was committed. It costs 10 microseconds.
	lookInterval = 10 * time.Millisecond

	// seenLimit bounds how many connections a listener remembers: pools may open new ones all day.
	seenLimit = 256
)

// bells are the listeners of this process, by session. A session's id is its own whatever the pool or the file, so
// that two clients of one process find each other however each of them opened the database.
var bells = struct {
	sync.Mutex
	of map[string]map[*bell]bool
}{of: map[string]map[*bell]bool{}}

// bell is a listener that can be rung. Its owner takes what was rung: a caller of ring must not run code of the
// listener's client, which may hold the same locks as the caller's.
type bell struct {
	rung  chan struct{}
	hints []string // guarded by bells
}

func hang(session string) *bell {
	b := &bell{rung: make(chan struct{}, 1)}
	bells.Lock()
	defer bells.Unlock()
	if bells.of[session] == nil {
		bells.of[session] = map[*bell]bool{}
	}
	bells.of[session][b] = true
	return b
}

func (b *bell) unhang(session string) {
	bells.Lock()
	defer bells.Unlock()
	delete(bells.of[session], b)
	if len(bells.of[session]) == 0 {
		delete(bells.of, session)
	}
}

func (b *bell) take() []string {
	bells.Lock()
	defer bells.Unlock()
	hints := b.hints
	b.hints = nil
	return hints
}

// ring tells the listeners of a session in this process that an attempt was granted, or has lost its lock.
func ring(session, attempt string) {
	bells.Lock()
	defer bells.Unlock()
	for b := range bells.of[session] {
		b.hints = append(b.hints, attempt)
		select {
		case b.rung <- struct{}{}:
		default:
		}
	}
}

// Listen hears grants made in this process from a bell, and all others from a watch on the database. The two are apart
// because the watch may wait for a connection of a pool that is in use.
func (e *engine) Listen(ctx context.Context, session string, ready func(), wake func(attempt string)) error {
	b := hang(session)
	defer b.unhang(session)
	w := watch{db: &e.db, seen: map[any]counters{}}
	if _, err := w.changed(ctx); err != nil {
		return err
	}
	ready()
	ctx, cancel := context.WithCancel(ctx)
	changes, failed := make(chan struct{}), make(chan error, 1)
	go func() { failed <- w.run(ctx, changes) }()
	defer func() {
		cancel()
		if failed != nil {
			<-failed
		}
	}()
	for {
		select {
		case <-b.rung:
			for _, attempt := range b.take() {
				wake(attempt)
			}
		case <-changes:
			wake("")
		case err := <-failed:
			failed = nil
			return err
		}
	}
}

// watch sees that something was committed, by whomever, through whichever connection.
type watch struct {
	db   *database
	seen map[any]counters // by the driver's connection: each counts for itself
}

// counters move when another connection has committed, and when this one has changed rows.
type counters struct{ version, changes int64 }

// run looks until ctx ends, and says so on changes when there was a change.
func (w *watch) run(ctx context.Context, changes chan<- struct{}) error {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		changed, err := w.changed(ctx)
		if err != nil {
			return err
		}
		if !changed {
			continue
		}
		select {
		case changes <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// changed looks at whichever connection the pool gives. One that was not seen before counts as changed: nobody knows
// what was committed since the others were looked at.
func (w *watch) changed(ctx context.Context) (changed bool, err error) {
	err = w.db.run(ctx, func(ctx context.Context, conn *sql.Conn) error {
		var now counters
		if err := conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&now.version); err != nil {
			return err
		}
		if err := conn.QueryRowContext(ctx, "SELECT total_changes()").Scan(&now.changes); err != nil {
			return err
		}
		return conn.Raw(func(driverConn any) error {
			if !reflect.ValueOf(driverConn).Comparable() {
				changed = true // a wrapper that cannot be told from others: look each time
				return nil
			}
			before, known := w.seen[driverConn]
			changed = !known || before != now
			if !known && len(w.seen) >= seenLimit {
				clear(w.seen)
			}
			w.seen[driverConn] = now
			return nil
		})
	})
	return changed, err
}
