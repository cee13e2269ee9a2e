package sqlite

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// firstPause is the first wait between two tries to get past another writer. Each is twice as
	// long as the one before, up to shortPause. A longer pause makes hand-overs among many writers
	// late.
	firstPause = 100 * time.Microsecond
	shortPause = time.Millisecond
	// longestPause is for a transaction that has lasted for longer than a moment already. A try
	// costs some microseconds, so that even the longest pause can be short.
	longestPause = 5 * time.Millisecond
	// pauseRatio is how many pauses fit into the time that was waited.
	pauseRatio = 50
)

// backoff is a wait in pauses. The zero value has not begun.
type backoff struct {
	since time.Time
	pause time.Duration
}

// wait returns after the next pause, or when ctx ends, with its error.
func (b *backoff) wait(ctx context.Context) error {
	b.lengthen(time.Now())
	return sleep(ctx, b.pause)
}

func (b *backoff) lengthen(now time.Time) {
	if b.since.IsZero() {
		b.since, b.pause = now, firstPause
		return
	}
	b.pause = min(2*b.pause, max(shortPause, now.Sub(b.since)/pauseRatio), longestPause)
}

// sleep waits for about as long as said, or until ctx ends: then it returns the context's error.
func sleep(ctx context.Context, about time.Duration) error {
	timer := time.NewTimer(about/2 + rand.N(about))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
