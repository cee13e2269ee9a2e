package client

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/sqlite"
)

type told struct{}

func TestAnObserverIsToldInTheWordsOfThePackage(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	var attempts []dblock.Attempt
	var results []dblock.AcquireResult
	var holds []dblock.HoldResult
	client := newClient(t, sqlite.New(db), dblock.WithObserver(dblock.Observer{
		AcquireStart: func(ctx context.Context, a dblock.Attempt) context.Context {
			attempts = append(attempts, a)
			return context.WithValue(ctx, told{}, a.Name)
		},
		AcquireEnd: func(ctx context.Context, a dblock.Attempt, r dblock.AcquireResult) {
			if ctx.Value(told{}) != a.Name || r.Took <= 0 {
				t.Errorf("%+v, %+v under %v", a, r, ctx)
			}
			results = append(results, r)
		},
		HoldEnd: func(r dblock.HoldResult) { holds = append(holds, r) },
	}))
	var token int64
	err := client.Do(t.Context(), "n", func(ctx context.Context, l *dblock.Lock[*sql.Tx]) error {
		token = l.Token()
		if l.Context().Value(told{}) != "n" {
			t.Error("the lock's context does not have the values of the observer's")
		}
		_, err := client.TryLock(t.Context(), "n", dblock.Permits(2, 3))
		if !errors.Is(err, dblock.ErrNotAcquired) {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ran, err := client.OncePer(t.Context(), "job", time.Hour, func(context.Context, *dblock.Lock[*sql.Tx], time.Time) error { return nil }); !ran || err != nil {
		t.Fatal(ran, err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := client.LockTx(t.Context(), tx, "b", dblock.Also("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Lock(t.Context(), ""); !errors.Is(err, dblock.ErrInvalidName) { // which is no attempt
		t.Error(err)
	}
	if want := []dblock.Attempt{
		{Name: "n", Wait: true}, {Name: "n", Shared: true, Permits: 2}, {Name: "once/job"}, {Name: "a", Wait: true}, {Name: "b", Wait: true},
	}; !slices.Equal(attempts, want) {
		t.Errorf("%+v: want %+v", attempts, want)
	}
	if len(results) != 5 || results[0].Token != token || results[0].Err != nil || !errors.Is(results[1].Err, dblock.ErrNotAcquired) ||
		results[2].Token == 0 || results[3].Token != 0 || results[3].Err != nil {
		t.Errorf("%+v", results)
	}
	if len(holds) != 2 || holds[0].Name != "n" || holds[0].Token != token || holds[0].Err != nil || holds[0].Held <= 0 || holds[1].Name != "once/job" {
		t.Errorf("%+v", holds)
	}
}

func TestAnObserverOfTheServersOwnLocksIsToldOfAttemptsAndHolds(t *testing.T) {
	var ends []dblock.HoldResult
	var results []dblock.AcquireResult
	lost := make(chan struct{})
	client := newClient(t, driver.Engine[*sql.Tx]{Native: single{lost}}, dblock.WithObserver(dblock.Observer{
		AcquireEnd: func(_ context.Context, _ dblock.Attempt, r dblock.AcquireResult) { results = append(results, r) },
		HoldEnd:    func(r dblock.HoldResult) { ends = append(ends, r) },
	}))
	l, err := client.Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	again, err := client.Lock(l.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	if s := client.Stats(); s != (dblock.Stats{Held: 1}) {
		t.Errorf("%+v", s)
	}
	if err := client.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	for _, l := range []*dblock.Lock[*sql.Tx]{l, again} {
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if len(results) != 2 || results[0].Err != nil || len(ends) != 1 || ends[0].Name != "n" || ends[0].Err != nil {
		t.Errorf("%+v, %+v", results, ends)
	}
}

// single is a server whose own locks are free.
type single struct{ lost chan struct{} }

func (single) Validate() error                                                   { return nil }
func (s single) Open(string, *slog.Logger, time.Duration) driver.Keeper[*sql.Tx] { return s }
func (single) Close(context.Context) error                                       { return nil }
func (single) LockTx(context.Context, *sql.Tx, string, bool, bool) (bool, error) { return true, nil }
func (s single) Lost() <-chan struct{}                                           { return s.lost }
func (single) Cause() error                                                      { return nil }
func (single) Release(context.Context) error                                     { return nil }

func (s single) Acquire(context.Context, string, bool, bool) (driver.Possession, bool, error) {
	return s, true, nil
}
