package reaper

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/testlog"
)

// guarded is a database with dead sessions and a transaction that guards their locks. Once the
// locks are free, the names are purged.
type guarded struct {
	driver.Backend // has nothing
	sweeps, stuck  int
	newer          int // a version of the tables that this build cannot use
	dead           []string
	pages          []string
	refuse         map[string]bool // the page after which the purge is postponed, once
}

func (g *guarded) Schema(context.Context) (driver.Schema, error) {
	return driver.Schema{Version: max(g.newer, driver.SchemaVersion), UsableFrom: max(g.newer, driver.SchemaVersion)},
		nil
}

func (g *guarded) Orphans(_ context.Context, limit int) (orphans []driver.Claim, _ error) {
	g.sweeps++
	for _, session := range g.dead[:min(limit, len(g.dead))] {
		orphans = append(orphans, driver.Claim{Session: session, Name: session, Token: 1})
	}
	return orphans, nil
}

// empty is a database that has nothing.
func empty() driver.Backend { return memory.NewLink(memory.NewDB()) }

func (g *guarded) Run(_ context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	if ops[0].On() == "stuck" {
		g.stuck++
		return nil, driver.ErrBusy
	}
	for i, session := range g.dead {
		if session == ops[0].On() {
			g.dead = append(g.dead[:i:i], g.dead[i+1:]...)
			break
		}
	}
	return []protocol.Result{{Outcome: protocol.Done}}, nil
}

func (g *guarded) Purge(_ context.Context, _ time.Duration, after string, _ int) (int, string, error) {
	if g.refuse[after] {
		delete(g.refuse, after)
		return 7, "", driver.ErrRetry
	}
	for _, page := range g.pages {
		if page > after {
			return 1, page, nil
		}
	}
	return 0, "", nil
}

// Broken by going on for as long as orphans are listed.
func TestSweepEndsWhereAllThatIsLeftIsPostponed(t *testing.T) {
	for _, dead := range [][]string{{"stuck"}, {"stuck", "a", "b", "c"}} {
		g := &guarded{Backend: empty(), dead: dead}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		batch := min(2, len(dead))
		done := make(chan Report, 1)
		go func() {
			report, err := Sweep(ctx, fakedb.On[any](g), Batch(batch))
			assert.NoError(t, err)
			done <- report
		}()
		select {
		case report := <-done:
			if len(g.dead) != 1 || report.Freed != len(dead)-1 || report.Postponed != g.stuck {
				t.Errorf("%v; still there: %v", report, g.dead)
			}
		case <-ctx.Done():
			t.Fatal("Sweep goes on for ever")
		}
	}
}

// Broken by using what Purge returns with an error: the walk would begin anew, and count what a
// rollback undid.
func TestAPurgeThatIsPostponedGoesOnFromWhereItStood(t *testing.T) {
	c, err := configOf(nil)
	require.NoError(t, err)
	g := &guarded{Backend: empty(), pages: []string{"a", "b"}, refuse: map[string]bool{"a": true}}
	s := sweeper{config: c, engine: g}
	for i, want := range []struct {
		after             string
		purged, postponed int
	}{{"a", 1, 0}, {"a", 0, 1}, {"b", 1, 0}, {"", 0, 0}} {
		report, err := s.sweep(t.Context(), 1, true)
		if err != nil || s.after != want.after || report.Purged != want.purged || report.Postponed != want.postponed {
			t.Errorf("sweep %d: after %q, %v, %v; want %+v", i, s.after, report, err, want)
		}
	}
	g.refuse["a"] = true
	report, err := Sweep(t.Context(), fakedb.On[any](g), Batch(1))
	if err != nil || report.Purged != 1 || report.Postponed != 1 {
		t.Errorf("%v, %v", report, err)
	}
}

func TestAReaperLeavesTablesThatItCannotUse(t *testing.T) {
	g := &guarded{Backend: empty(), dead: []string{"a"}, newer: driver.SchemaVersion + 1}
	report, err := Sweep(t.Context(), fakedb.On[any](g))
	if !errors.Is(err, driver.ErrSchema) || !report.Zero() || g.sweeps != 0 {
		t.Errorf("%v, %v after %d looks", report, err, g.sweeps)
	}
}

// Broken by a sweep that waits for its report, or for a line of the log.
func TestSweepsGoOnBesideALoggerAndAReportThatBlock(t *testing.T) {
	for name, option := range map[string]func(end chan struct{}) Option{
		"a logger": func(end chan struct{}) Option { return Logger(testlog.Stuck(end)) },
		"a report": func(end chan struct{}) Option { return OnReport(func(Report) { <-end }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := make(chan struct{})
				defer close(end)
				g := &guarded{Backend: empty(), dead: []string{"stuck"}}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- Run(ctx, fakedb.On[any](g), Interval(time.Second), option(end)) }()
				time.Sleep(time.Minute)
				cancel()
				began := time.Now()
				if err := <-done; err != nil || g.stuck < 40 || time.Since(began) > 2*time.Second {
					t.Errorf("%v after %d sweeps, and %v", err, g.stuck, time.Since(began))
				}
			})
		})
	}
}

// orphanage is a database in which a session has expired, and whose first list of orphans fails.
type orphanage struct {
	driver.Backend
	expired []string
	lists   int
}

func (o *orphanage) Expired(context.Context, int) ([]string, error) { return o.expired, nil }

func (o *orphanage) Expire(context.Context, string) (bool, error) {
	o.expired = nil
	return true, nil
}

func (o *orphanage) Orphans(context.Context, int) ([]driver.Claim, error) {
	if o.lists++; o.lists == 1 {
		return nil, errors.New("cut off")
	}
	return nil, nil
}

// Broken by a sweep that forgets the orphans that it could not list.
func TestOrphansAreListedAfterADeathUntilThatHasWorked(t *testing.T) {
	c, err := configOf(nil)
	require.NoError(t, err)
	o := &orphanage{Backend: empty()}
	s := sweeper{config: c, engine: o}
	for i, want := range []struct {
		dies  bool
		lists int
	}{{false, 0}, {true, 1}, {false, 2}, {false, 2}} {
		if want.dies {
			o.expired = []string{"s"}
		}
		if _, err := s.sweep(t.Context(), 10, false); (err != nil) != want.dies || o.lists != want.lists {
			t.Errorf("sweep %d: %v, and %d lists; want %d", i, err, o.lists, want.lists)
		}
	}
}
