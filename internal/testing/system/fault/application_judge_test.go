//go:build unix

package fault

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
)

// Violations of the kind application.
const (
	twoHolders = "two holders" // more hold a name than may
	lateWrite  = "late write"  // a guarded row came after the next holder had looked
	sharedFate = "shared fate" // a call failed for what another one had asked for
	miscounts  = "counters"    // a counter does not say what the rows do
	borrowings = "connections" // a pooled connection is not as a new one
)

// judge knows what all goroutines of the application believe to hold.
type judge struct {
	world *world

	mu      sync.Mutex // protects what follows
	beliefs map[string][]*belief
	notes   []note
}

// belief is that a context is live in which a name, or a part of it, is held.
type belief struct {
	portion
	ctx  context.Context
	left chan struct{} // closed by who held it, before it was released
}

// note is how many rows with lower tokens a holder has seen in a guarded transaction.
type note struct {
	name  string
	token int64
	seen  int
}

func newJudge(w *world) *judge { return &judge{world: w, beliefs: map[string][]*belief{}} }

// believe notes that a part of a name is held while ctx is live, until leave is called.
func (j *judge) believe(name string, ctx context.Context, p portion) (leave func()) {
	b := &belief{p, ctx, make(chan struct{})}
	j.mu.Lock()
	defer j.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(j.beliefs[name]), func(o *belief) bool { return o.ctx.Err() != nil })
	if ctx.Err() == nil && !p.beside(partsOf(others)) {
		go j.suspect(name, p, others)
	}
	j.beliefs[name] = append(others, b)
	return sync.OnceFunc(func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		close(b.left)
		j.beliefs[name] = slices.DeleteFunc(j.beliefs[name], func(o *belief) bool { return o == b })
	})
}

func partsOf(beliefs []*belief) (all []portion) {
	for _, b := range beliefs {
		all = append(all, b.portion)
	}
	return all
}

// suspect waits until it is known how the others end that a grant has met. On a machine that is
// busy, the context of a lock may end a moment after its lease: that is no violation, where the
// context ends by itself.
func (j *judge) suspect(name string, p portion, others []*belief) {
	late := time.NewTimer(ttl / 4)
	defer late.Stop()
	stayed := slices.DeleteFunc(others, func(o *belief) bool {
		select {
		case <-o.left:
		case <-late.C:
			late.Reset(0)
		case <-o.ctx.Done():
			return true
		}
		return false
	})
	if !p.beside(partsOf(stayed)) {
		j.world.Errorf("%s: %q: %v was granted beside %v", twoHolders, name, p, partsOf(stayed))
	}
}

// wrote notes what a guarded transaction has seen.
func (j *judge) wrote(name string, token int64, seen int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.notes = append(j.notes, note{name, token, seen})
}

// lateWrites compares what holders have seen with what is there in the end.
func (a *application) lateWrites() {
	a.Helper()
	rows, err := a.sql.QueryContext(a.Context(), "SELECT name, token FROM writes")
	if err != nil {
		a.Fatal(err)
	}
	defer rows.Close()
	written := map[string][]int64{}
	for rows.Next() {
		var name string
		var token int64
		if err := rows.Scan(&name, &token); err != nil {
			a.Fatal(err)
		}
		written[name] = append(written[name], token)
	}
	if err := rows.Err(); err != nil {
		a.Fatal(err)
	}
	for _, tokens := range written {
		slices.Sort(tokens)
	}
	for _, n := range a.notes {
		if before, _ := slices.BinarySearch(written[n.name], n.token); before != n.seen {
			a.Errorf("%s: %q: the holder with token %d saw %d rows with lower tokens, of %d", lateWrite, n.name, n.token, n.seen, before)
		}
	}
	a.tried("guarded writes", len(a.notes))
}

// own is an error of a statement of the application's own.
type own struct{ error }

func (o own) Unwrap() error { return o.error }

// explain looks whether the faults explain an error of a call for a name.
func (j *judge) explain(name string, err error) {
	switch {
	case err == nil, errors.As(err, new(own)):
		return
	case strings.Contains(err.Error(), refusal):
		if name != refused {
			j.world.Errorf("%s: %v", sharedFate, err)
		}
		return
	}
	for _, explained := range []error{
		context.Canceled, context.DeadlineExceeded, dblock.ErrNotAcquired, dblock.ErrLost, dblock.ErrUnavailable, dblock.ErrDeadlock,
		driver.ErrRetry, driver.ErrBusy, sql.ErrTxDone,
	} {
		if errors.Is(err, explained) {
			return
		}
	}
	j.world.Errorf("%s: %v", surprises, err)
}
