package suite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/oracle"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/testlog"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/reaper"
)

// Elsewhere has clients do what there is to do with tables that their connections do not find by
// themselves: a statement that names no place fails. open makes an engine for the tables of a
// place, of which there are two; begin a transaction of the application's, with what commits it.
func Elsewhere[TX any](
	t *testing.T, open func(place string) dblock.Engine[TX],
	begin func(ctx context.Context) (tx TX, commit func() error, err error), places [2]string,
) {
	client := func(place string) *dblock.Client[TX] {
		// a reaper would end sessions of the oracle: some have a TTL of a millisecond
		c, err := dblock.New(open(place), dblock.WithEvents(), dblock.WithoutReaper(),
			dblock.WithLogger(testlog.New(t.Output(), t.Error)))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close(context.Background())) })
		return c
	}
	a, b, other := client(places[0]), client(places[0]), client(places[1])
	ctx, inspector := t.Context(), inspect.New(a)
	held, err := a.Lock(ctx, "n", dblock.Metadata(map[string]string{"a": "b"}))
	require.NoError(t, err)
	assert.ErrorIs(t, assert.ErrOf(b.TryLock(ctx, "n")), dblock.ErrNotAcquired, "a name that is held")
	if l, err := other.TryLock(ctx, "n"); err != nil {
		t.Errorf("the same name in another place: %v", err)
	} else if err := l.Unlock(ctx); err != nil {
		t.Error(err)
	}
	next := make(chan *dblock.Lock, 1)
	go func() {
		l, err := b.Lock(ctx, "n")
		assert.NoError(t, err)
		next <- l
	}()
	eventually(t, patience, "somebody waits", func() bool {
		info, err := inspector.Lock(ctx, "n")
		return err == nil && len(info.Waiters) == 1
	})
	if why, err := inspector.Why(ctx, "n"); err != nil || len(why) == 0 {
		t.Errorf("why: %v, %v", why, err)
	}
	did := func(what string, errs ...error) {
		t.Helper()
		assert.NoError(t, errors.Join(errs...), what)
	}
	did("Ask", b.Ask(ctx, "n", "please"))
	did("Record", held.Record(ctx, "noted", "a detail"))
	tx, commit, err := begin(ctx)
	require.NoError(t, err)
	did("Guard and UnlockTx", a.Guard(ctx, tx, held), a.UnlockTx(ctx, tx, held), commit(), held.Unlock(ctx))
	l := within(t, patience, "the lock goes to the waiter", next)
	if l == nil {
		return
	}
	did("Downgrade and TryUpgrade", l.Downgrade(ctx), l.TryUpgrade(ctx))
	if n, err := a.Break(ctx, "n", "it is needed"); err != nil || n != 1 {
		t.Errorf("Break: %d, %v", n, err)
	}
	<-l.Context().Done()
	if tx, commit, err = begin(ctx); err != nil {
		t.Fatal(err)
	}
	did("LockTx", a.LockTx(ctx, tx, "n", "m"), commit())
	for what, option := range map[string]dblock.LockOption{
		"Shared": dblock.Shared(), "Permits": dblock.Permits(2, 5), "Lease": dblock.Lease(time.Hour),
		"Owner": dblock.Owner("h", "t"), "MinHold": dblock.MinHold(time.Millisecond),
	} {
		l, err := a.Lock(ctx, what, option)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if what == "Lease" {
			did("Extend", l.Extend(ctx, 2*time.Hour))
		}
		did(what, l.Unlock(ctx))
	}
	all, err := a.LockAll(ctx, []string{"x", "y", "z"})
	if did("LockAll", err); err == nil {
		did("LockAll", all.Unlock(ctx))
	}
	ran, err := jobs.New(a).OncePer(ctx, t.Name(), time.Hour, nothing)
	if did("OncePer", err); !ran {
		t.Error("the job did not run")
	}
	for run, err := range jobs.New(a).Runs(ctx, t.Name()) {
		did("Runs "+run.Name, err)
	}
	for job, err := range jobs.New(a).Jobs(ctx) {
		did("Jobs "+job.Name, err)
	}
	for info, err := range inspector.List(ctx, inspect.Filter{Idle: true}) {
		did("List "+info.Name, err)
	}
	for s, err := range inspector.Sessions(ctx, inspect.SessionFilter{Dead: true}) {
		did("Sessions "+s.ID, err)
	}
	for info, err := range inspector.Watch(ctx, "n") {
		did("Watch "+info.Name, err)
		break
	}
	did("Ping", a.Ping(ctx))
	did("CheckSchema", a.CheckSchema(ctx))
	eventually(t, patience, "the events are written", func() bool {
		for e, err := range inspector.Events(ctx, inspect.EventFilter{Name: "n"}) {
			require.NoError(t, err)
			if e.Kind == "broken" {
				return true
			}
		}
		return false
	})
	engine := open(places[0])
	assert.NoError(t, assert.ErrOf(reaper.Sweep(ctx, engine, reaper.Retention(0), reaper.History(0))), "the reaper")
	backend := inside.Of(engine).Backend
	_, err = backend.Incarnation(ctx, true, 7)
	did("Incarnation", err)
	defer backend.Attend("", time.Hour)()
	oracle.Compare(t, unheard{backend, backend}, 1, 100)
}

// unheard is an engine without Upkeep: its hints are not compared.
type unheard struct {
	driver.Names
	opener
}

type opener interface {
	OpenSession(ctx context.Context, s driver.Session) error
	EndSession(ctx context.Context, session string, empty bool) error
}
