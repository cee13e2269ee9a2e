package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/observe"
	"github.com/dblock-go/dblock/sqlite"
)

type told struct{}

func TestAnObserverIsToldInTheWordsOfThePackage(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	var attempts []observe.Attempt
	var results []observe.AcquireResult
	var holds []observe.HoldResult
	client := newClient(t, sqlite.New(db), dblock.WithObserver(observe.Observer{
		AcquireStart: func(ctx context.Context, a observe.Attempt) context.Context {
			attempts = append(attempts, a)
			return context.WithValue(ctx, told{}, a.Name)
		},
		AcquireEnd: func(ctx context.Context, a observe.Attempt, r observe.AcquireResult) {
			if ctx.Value(told{}) != a.Name || r.Took <= 0 {
				t.Errorf("%+v, %+v under %v", a, r, ctx)
			}
			results = append(results, r)
		},
		HoldEnd: func(r observe.HoldResult) { holds = append(holds, r) },
	}))
	var token int64
	err := client.Do(t.Context(), "n", func(ctx context.Context, l *dblock.Lock) error {
		token = l.Token()
		assert.Equal(t, l.Context().Value(told{}), "n", "the lock's context does not have the values of the observer's")
		_, err := client.TryLock(t.Context(), "n", dblock.Permits(2, 3))
		assert.ErrorIs(t, err, dblock.ErrNotAcquired)
		return nil
	})
	require.NoError(t, err)
	if ran, err := jobs.New(client).OncePer(t.Context(), "job", time.Hour, func(context.Context, *dblock.Lock,
		time.Time) error {
		return nil
	}); !ran || err != nil {
		t.Fatal(ran, err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	require.NoError(t, client.LockTx(t.Context(), tx, "b", "a"))
	if _, err := client.Lock(t.Context(), ""); !errors.Is(err, dblock.ErrInvalidName) { // which is no attempt
		t.Error(err)
	}
	assert.NoError(t, tx.Rollback())
	if err := client.Close(t.Context()); err != nil { // which waits until the observer was told
		t.Error(err)
	}
	if want := []observe.Attempt{
		{Name: "n", Wait: true}, {Name: "n", Shared: true, Permits: 2}, {Name: "once/job"}, {Name: "a", Wait: true},
		{Name: "b", Wait: true},
	}; !slices.Equal(attempts, want) {
		t.Errorf("%+v: want %+v", attempts, want)
	}
	if len(results) != 5 || results[0].Token != token || results[0].Err != nil || !errors.Is(results[1].Err,
		dblock.ErrNotAcquired) ||
		results[2].Token == 0 || results[3].Token != 0 || results[3].Err != nil {
		t.Errorf("%+v", results)
	}
	if len(holds) != 2 || holds[0].Name != "n" || holds[0].Token != token || holds[0].Err != nil ||
		holds[0].Held <= 0 || holds[1].Name != "once/job" {
		t.Errorf("%+v", holds)
	}
}
