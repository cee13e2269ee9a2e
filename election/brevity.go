package election

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/backoff"
)

const (
	// briefTerm is the length of a term up to which a candidate pauses before it stands again.
	briefTerm = time.Second
	// firstRest and longestRest bound the pause after a brief term.
	firstRest, longestRest = 50 * time.Millisecond, 10 * time.Second
)

// brevity is the number of brief terms in a row, and the pause that is due after the last one. A
// function that returns at once would otherwise cost a term, with its commits and its rows of the
// history, as often as the database can grant one.
type brevity struct {
	terms int
	pause time.Duration
}

// measured returns the function of a term, which is measured.
func (b *brevity) measured(fn func(context.Context, *Term) error) func(context.Context, *Term) error {
	return func(ctx context.Context, t *Term) error {
		began := time.Now()
		defer func() { b.count(time.Since(began)) }()
		return fn(ctx, t)
	}
}

func (b *brevity) count(term time.Duration) {
	if term > briefTerm {
		*b = brevity{}
		return
	}
	b.terms++
	b.pause = backoff.Pause(b.terms, firstRest, longestRest)
}

// rest waits for the pause that is due, or until ctx ends.
func (b *brevity) rest(ctx context.Context) {
	due := b.pause
	if b.pause = 0; due == 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(due):
	}
}
