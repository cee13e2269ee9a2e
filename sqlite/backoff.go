package sqlite

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// firstPause is the first wait between two attempts to get past another writer. Each later wait
	// is twice as long, up to shortPause. A longer pause makes hand-overs among many writers late.
	firstPause = 100 * time.Microsecond
	shortPause = time.Millisecond
	// longestPause bounds the wait for a transaction that has already lasted long. An attempt costs
	// some microseconds, so even the longest pause can be short.
	longestPause = 5 * time.Millisecond
	// pauseRatio is the number of pauses that fit into the time already waited.
	pauseRatio = 50
)

// backoff is a wait in pauses. The zero value has not begun.
type backoff struct {
	since time.Time
	pause time.Duration
}

// wait returns after the next pause. If ctx ends first, wait returns its error.
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

// sleep waits for half to one and a half times about. If ctx ends first, sleep returns its error.
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
