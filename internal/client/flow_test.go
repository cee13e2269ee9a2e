package client

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// recorder is a database that notes the transitions and reads of one client.
type recorder struct {
	*paper
	mu    sync.Mutex
	steps []string
}

func (r *recorder) note(step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, step)
}

func (r *recorder) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	step := strings.TrimPrefix(fmt.Sprintf("%T", ops[0]), "protocol.")
	if len(ops) > 1 {
		step = fmt.Sprintf("%d × %s", len(ops), step)
	}
	r.note(step)
	return r.paper.Run(ctx, ops...)
}

func (r *recorder) Read(ctx context.Context, session string, names []string, limit int) ([]driver.State, error) {
	r.note("Read")
	return r.paper.Read(ctx, session, names, limit)
}

// flow is a client, and another that holds and waits for the same name.
type flow struct {
	*testing.T
	*recorder
	c, other *Client
}

// of runs a call, and returns the steps that it took.
func (f *flow) of(call func()) string {
	f.steps = nil
	call()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.steps) == 0 {
		return "-"
	}
	return strings.Join(f.steps, ", ")
}

func (f *flow) lock(c *Client) *Lock { return acquire(f.T, f.Context(), c, "n") }

func (f *flow) unlock(l *Lock) { require.NoError(f, l.Unlock(f.Context())) }

func (f *flow) lockAll() *Locks {
	l, _, err := f.c.AcquireAll(f.Context(), []Want{want("a"), want("b")}, true)
	require.NoError(f, err)
	return l
}

func (f *flow) refused() {
	assert.ErrorIs(f, assert.ErrOf(f.c.Acquire(f.Context(), new(want("n")), false)), ErrNotAcquired, "TryLock")
}

// wait has a client wait for the name, until stop or the end of the test.
func (f *flow) wait(c *Client) (stop func()) {
	ctx, cancel := context.WithCancel(f.Context())
	var done sync.WaitGroup
	done.Go(func() { _, _ = c.Acquire(ctx, new(want("n")), true) })
	synctest.Wait()
	stop = func() { cancel(); done.Wait() }
	f.Cleanup(stop)
	return stop
}

var flows = map[string]func(f *flow) (steps string){
	"Lock of a free name": func(f *flow) string { return f.of(func() { f.lock(f.c) }) },
	"Lock of a held name": func(f *flow) string {
		f.lock(f.other)
		return f.of(func() { f.wait(f.c) })
	},
	"Lock of a name that was seen held": func(f *flow) string {
		f.lock(f.other)
		f.refused()
		return f.of(func() { f.wait(f.c) })
	},
	"Lock beside a waiter of the client": func(f *flow) string {
		f.lock(f.other)
		f.wait(f.c)
		return f.of(func() { f.wait(f.c) })
	},
	"Lock that stops waiting": func(f *flow) string {
		f.lock(f.other)
		return f.of(f.wait(f.c))
	},
	"Lock of its own owner": func(f *flow) string {
		l := f.lock(f.c)
		return f.of(func() { acquire(f.T, l.Context(), f.c, "n") })
	},
	"TryLock of a held name": func(f *flow) string {
		f.lock(f.other)
		return f.of(f.refused)
	},
	"TryLock of a name that was seen held": func(f *flow) string {
		f.lock(f.other)
		f.refused()
		return f.of(f.refused)
	},
	"LockAll of free names": func(f *flow) string { return f.of(func() { f.lockAll() }) },
	"Unlock without waiters": func(f *flow) string {
		l := f.lock(f.c)
		return f.of(func() { f.unlock(l) })
	},
	"Unlock with a waiter of another client": func(f *flow) string {
		l := f.lock(f.c)
		f.wait(f.other)
		return f.of(func() { f.unlock(l) })
	},
	"Unlock of a lock that was entered twice": func(f *flow) string {
		l := f.lock(f.c)
		again := acquire(f.T, l.Context(), f.c, "n")
		return f.of(func() { f.unlock(again) })
	},
	"Unlock of Locks": func(f *flow) string {
		l := f.lockAll()
		return f.of(func() { l.Unlock(f.Context()) })
	},
	"Extend": func(f *flow) string {
		w := want("n")
		w.Lease = time.Minute
		l, err := f.c.Acquire(f.Context(), &w, true)
		require.NoError(f, err)
		return f.of(func() { require.NoError(f, l.Extend(f.Context(), time.Hour)) })
	},
	"Detach": func(f *flow) string {
		l := f.lock(f.c)
		return f.of(func() { require.NoError(f, l.Detach(f.Context(), time.Hour)) })
	},
}

var flowRow = regexp.MustCompile(`(?m)^//\t(.{39}) (\S.*)$`)

// The table in the package comment has every flow, with its steps.
func TestTheFlowsAreThoseOfTheTable(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	flowing, _, _ := strings.Cut(string(text), "# Verbs")
	table := map[string]string{}
	for _, row := range flowRow.FindAllStringSubmatch(flowing, -1) {
		table[strings.TrimSpace(row[1])] = row[2]
	}
	for name := range table {
		if flows[name] == nil {
			t.Errorf("no test has %q", name)
		}
	}
	for name, steps := range flows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPaper()
				f := &flow{T: t, recorder: &recorder{paper: p}, other: newPaperClient(t, p, nil)}
				f.c = newPaperClient(t, f.recorder, nil)
				if got := steps(f); got != table[name] {
					t.Errorf("its steps are %s, and in the table %s", got, table[name])
				}
			})
		})
	}
}
