package election

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"github.com/dblock-go/dblock/inspect"
)

const (
	// weightKey is the key of a candidate's weight in its metadata, which the database keeps with
	// its place in the queue.
	weightKey = "weight"
	// defaultWeight is the weight of a candidate without Weight. It is not stored.
	defaultWeight = 1
)

// Weight prefers the candidate to all lighter ones: of the candidates that wait, the heaviest leads
// next, and of equal ones the first in the queue. A lighter candidate whose turn comes lets the
// heavier one pass: it goes to the end of the queue without a term. A lighter leader keeps the lead
// until it resigns: see Term.Preferred. A heaviest leader that resigns is elected again as soon as
// it stands. With weight 0 the candidate never leads: it waits outside of the queue until ctx ends,
// and its function is not called.
//
// Package inspect, and observers while the candidate leads, show the weight in the metadata, under
// the key "weight", unless it is 1. 0 or more. Default: 1.
func Weight(n int) Option { return func(c *config) { c.weight = n } }

// check returns the reason why the candidate cannot have its weight, or nil.
func (c *config) check() error {
	if c.weight < 0 {
		return fmt.Errorf("Weight(%d): want 0 or more", c.weight)
	}
	if _, used := c.metadata[weightKey]; used {
		return fmt.Errorf("the key %q of Metadata is reserved: use Weight", weightKey)
	}
	return nil
}

// place returns the metadata of the candidate's place in the queue.
func (c *config) place() map[string]string {
	if c.weight == defaultWeight {
		return c.metadata
	}
	return with(c.metadata, map[string]string{weightKey: strconv.Itoa(c.weight)})
}

// with returns a copy of metadata with more in it.
func with(metadata, more map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, metadata)
	maps.Copy(all, more)
	return all
}

// outweighed reports whether a living waiter of the name is heavier than the weight.
func outweighed(i inspect.Info, weight int) bool {
	for _, w := range i.Waiters {
		of, err := strconv.Atoi(w.Metadata[weightKey])
		if err != nil { // none, or not a candidate's
			of = defaultWeight
		}
		if w.Alive && of > weight {
			return true
		}
	}
	return false
}

// awaitHeavier closes the term's channel when a heavier candidate waits. It returns then, or when
// ctx ends.
func (e *Elections) awaitHeavier(ctx context.Context, t *Term, weight int) {
	for ctx.Err() == nil {
		for info, err := range e.inspector.Watch(ctx, t.Name()) {
			if err == nil && outweighed(info, weight) {
				close(t.heavier)
				return
			}
		}
		pause(ctx, retryPause)
	}
}

// Preferred is closed when a candidate that is heavier than the leader waits. The leader should
// return nil, or resign, when it suits: then the heaviest candidate leads. Until then it leads on.
// If the heavier candidate has gone meanwhile, the next one leads.
//
// From the first call of Preferred on, the client watches the queue, and usually notices a heavier
// candidate within a third of a TTL. Call Preferred while the term lasts.
func (t *Term) Preferred() <-chan struct{} {
	t.looks.Do(func() { t.looking.Go(t.look) })
	return t.heavier
}

// endLook waits until the term does not look any more. Its context MUST have ended.
func (t *Term) endLook() {
	t.looks.Do(func() {})
	t.looking.Wait()
}
