package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// mutexes are locks in memory. broken ones are granted to everybody.
type mutexes struct {
	broken bool
	names  sync.Map
}

func (m *mutexes) lock(_ context.Context, name string) (func(context.Context) error, error) {
	one, _ := m.names.LoadOrStore(name, make(chan struct{}, 1))
	if m.broken {
		return func(context.Context) error { return nil }, nil
	}
	one.(chan struct{}) <- struct{}{}
	return func(context.Context) error { <-one.(chan struct{}); return nil }, nil
}

func (m *mutexes) close() {}

func (m *mutexes) peer() peer {
	return peer{open: func(context.Context, string, time.Duration) (locker, error) { return m, nil }}
}

func TestAPeerThatDoesNotExcludeIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, excludes(t.Context(), (&mutexes{}).peer(), ""))
		assert.ErrorIs(t, excludes(t.Context(), (&mutexes{broken: true}).peer(), ""), errTwoHolders)
	})
}

func TestTurnsThatOverlapAreAnError(t *testing.T) {
	turns := []turn{{who: 1, granted: 30, unlocked: 40}, {who: 0, granted: 10, unlocked: 20}}
	h, err := judge(turns, 2, 0, 100)
	require.NoError(t, err)
	require.Equal(t, len(h.times), 1, "hand-offs")
	assert.Equal(t, h.times[0], 10, "it took")
	assert.Equal(t, h.jain(), 1, "fairness")
	assert.ErrorIs(t, assert.ErrOf(judge(append(turns, turn{who: 0, granted: 39, unlocked: 50}), 2, 0, 100)),
		errTwoHolders)
}

func TestATurnOfTheSameContenderIsNoHandoff(t *testing.T) {
	h, err := judge([]turn{{granted: 10, unlocked: 20}, {granted: 30, unlocked: 40}}, 2, 0, 100)
	require.NoError(t, err)
	assert.Equal(t, len(h.times), 0, "hand-offs")
	assert.Equal(t, h.jain(), 0.5, "fairness")
}

func TestAPeerIsFoundByItsNameAlone(t *testing.T) {
	for _, p := range peers {
		found, ok := peerNamed(p.name)
		if !ok || found.title != p.title {
			t.Errorf("%q is %q: want %q", p.name, found.title, p.title)
		}
	}
}

func TestTablesHaveARatioToDblockOnPostgreSQL(t *testing.T) {
	of := func(first float64) (all [][]float64) {
		for _, w := range workloads {
			all = append(all, append([]float64{first}, make([]float64, len(w.heads)-1)...))
		}
		return all
	}
	dblock, _ := peerNamed(compared)
	f := figures{rows: []row{{peer: dblock, figures: of(100)}, {peer: peer{title: "other", durable: "quick"},
		figures: of(200)}, {peer: peer{title: "elsewhere", crashes: true}, crashed: []time.Duration{time.Second}}}}
	var b strings.Builder
	require.NoError(t, f.print(&b))
	want := "| other | quick | 0.50 | 2.0 | 2.0 | 2.0 | 2.0 |\n"
	if !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
	assert.Equal(t, strings.Count(b.String(), "| elsewhere |"), 1, "rows of a peer of crashes alone")
}
