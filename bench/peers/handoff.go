package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

const (
	processes  = 8
	goroutines = 32
	oneName    = "the one name"
)

// turn is a lock of one process or goroutine, by the clock that all processes of the machine share.
type turn struct {
	who               int
	granted, unlocked time.Duration // when lock returned, when unlock was called
}

// contend locks a name again and again until a time.
func contend(ctx context.Context, l locker, who int, name string, until time.Duration) (turns []turn, err error) {
	for session.Boottime() < until {
		unlock, err := l.lock(ctx, name)
		if err != nil {
			return nil, err
		}
		t := turn{who: who, granted: session.Boottime()}
		t.unlocked = session.Boottime()
		if err := unlock(ctx); err != nil {
			return nil, err
		}
		turns = append(turns, t)
	}
	return turns, nil
}

// handoffs are the times from unlock to the next grant where they were of different contenders, and
// the turns of each.
type handoffs struct {
	times  []time.Duration
	counts []float64
}

// judge counts the turns that were granted between two times. Turns that overlap are an error.
func judge(turns []turn, contenders int, from, until time.Duration) (handoffs, error) {
	h := handoffs{counts: make([]float64, contenders)}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.granted, b.granted) })
	for i, t := range turns {
		if i > 0 && t.granted < turns[i-1].unlocked {
			return handoffs{}, fmt.Errorf("%w: %+v before the end of %+v", errTwoHolders, t, turns[i-1])
		}
		if t.granted < from || t.granted >= until {
			continue
		}
		h.counts[t.who]++
		if i > 0 && turns[i-1].who != t.who {
			h.times = append(h.times, t.granted-turns[i-1].unlocked)
		}
	}
	return h, nil
}

// jain is 1 if all had as many turns, and 1/n if one had all of them.
func (h handoffs) jain() float64 {
	var sum, squares float64
	for _, n := range h.counts {
		sum += n
		squares += n * n
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(h.counts)) * squares)
}

// byProcesses has 8 processes contend for one name.
func byProcesses(ctx context.Context, s subject, d time.Duration) ([]float64, error) {
	children := make([]*child, processes)
	for i := range children {
		c, err := s.child(ctx, "contend", oneName, 0)
		if err != nil {
			return nil, err
		}
		defer c.end()
		children[i] = c
	}
	from := session.Boottime() + d/warmUp
	until := from + d
	var all sync.Mutex
	var turns []turn
	err := each(ctx, processes, func(_ context.Context, i int) error {
		its, err := children[i].contend(i, until)
		all.Lock()
		defer all.Unlock()
		turns = append(turns, its...)
		return err
	})
	if err != nil {
		return nil, err
	}
	h, err := judge(turns, processes, from, until)
	return []float64{float64(len(h.times)) / d.Seconds(), millis(quantile(h.times, 0.5)),
		millis(quantile(h.times, 0.99)), h.jain()}, err
}

// byGoroutines has 32 goroutines of one client contend for one name.
func byGoroutines(ctx context.Context, s subject, d time.Duration) ([]float64, error) {
	l, err := s.start(ctx, s.at)
	if err != nil {
		return nil, err
	}
	defer l.close()
	// The first turns connect, and make sessions.
	err = each(ctx, goroutines, func(ctx context.Context, _ int) error { return pair(ctx, l, oneName) })
	if err != nil {
		return nil, err
	}
	from := session.Boottime() + d/warmUp
	until := from + d
	var all sync.Mutex
	var turns []turn
	err = each(ctx, goroutines, func(ctx context.Context, g int) error {
		its, err := contend(ctx, l, g, oneName, until)
		all.Lock()
		defer all.Unlock()
		turns = append(turns, its...)
		return err
	})
	if err != nil {
		return nil, err
	}
	h, err := judge(turns, goroutines, from, until)
	return []float64{float64(len(h.times)) / d.Seconds(), millis(quantile(h.times, 0.5))}, err
}
