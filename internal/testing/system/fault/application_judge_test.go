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
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Violations of the kind application.
const (
	twoHolders = "two holders" // more hold a name than may
	lateWrite  = "late write"  // a guarded row came after the next holder had looked
	lostUpdate = "lost update" // two transactions have bumped one version
	sharedFate = "shared fate" // a call failed for what another one had asked for
	zombies    = "zombies"     // a call succeeded in a transaction that had ended
	miscounts  = "counters"    // a counter does not say what the rows do
	borrowings = "connections" // a pooled connection is not as a new one
	elsewhere  = "elsewhere"   // a statement has found other tables
)

// judge has what all goroutines of the application believe to hold.
type judge struct {
	world *world

	mu    sync.Mutex // protects what follows
	holds []*hold
	notes []note
}

// note is how many rows with lower tokens a holder has seen in a guarded transaction.
type note struct {
	name  string
	token int64
	seen  int
}

// believe notes that a part of a name is held while ctx is live, until leave is called. leave MUST
// be called before the release. On a machine that is busy, the context of a lock may end a moment
// after its lease: so much of a hold that ended by itself does not count.
func (j *judge) believe(name string, ctx context.Context, p portion) (leave func()) {
	now := session.Boottime()
	h := newHold("application", 0, name, p, 0, now, now)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.holds = append(j.holds, h)
	end := func(late time.Duration) {
		j.mu.Lock()
		defer j.mu.Unlock()
		h.end(session.Boottime() - late)
	}
	stop := context.AfterFunc(ctx, func() { end(ttl / 4) })
	return func() {
		if stop() {
			end(0)
		}
	}
}

// held notes a hold that has ended, and of which it became known then that it was one.
func (j *judge) held(name string, from, until time.Duration) {
	h := newHold("application", 0, name, portion{}, 0, from, from)
	h.end(until)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.holds = append(j.holds, h)
}

// decide compares what was believed. Whatever has not ended is believed in now.
func (j *judge) decide() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, h := range j.holds {
		if h.until == forever {
			h.end(session.Boottime() - ttl/4)
		}
	}
	j.world.tell(twoHolders, crowded(j.holds))
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
	require.NoError(a, err)
	defer rows.Close()
	written := map[string][]int64{}
	for rows.Next() {
		var name string
		var token int64
		require.NoError(a, rows.Scan(&name, &token))
		written[name] = append(written[name], token)
	}
	require.NoError(a, rows.Err())
	for _, tokens := range written {
		slices.Sort(tokens)
	}
	for _, n := range a.notes {
		if before, _ := slices.BinarySearch(written[n.name], n.token); before != n.seen {
			a.Errorf("%s: %q: the holder with token %d saw %d rows with lower tokens, of %d", lateWrite, n.name,
				n.token, n.seen, before)
		}
	}
	a.tried("guarded writes", len(a.notes))
}

// versionOf begins the names of the rows with versions.
const versionOf = "version of "

// lostUpdates looks for versions that more than one transaction has read, bumped and committed.
func (a *application) lostUpdates() {
	a.Helper()
	if n := a.number0("SELECT count(*) FROM (SELECT name FROM writes WHERE name LIKE '" + versionOf +
		"%' GROUP BY name, token HAVING count(*) > 1) AS twice"); n > 0 {
		a.Errorf("%s: of %d versions", lostUpdate, n)
	}
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
		assert.Equal(j.world, name, refused, sharedFate, err)
		return
	}
	for _, explained := range []error{
		context.Canceled, context.DeadlineExceeded, dblock.ErrNotAcquired, dblock.ErrLost, dblock.ErrUnavailable,
		dblock.ErrDeadlock,
		driver.ErrRetry, driver.ErrBusy, sql.ErrTxDone,
	} {
		if errors.Is(err, explained) {
			return
		}
	}
	j.world.Errorf("%s: %v", surprises, err)
}
