package quorum

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

// healLimit is how long it may take to find the highest token of the other nodes: they look at all
// their locks.
const healLimit = 30 * time.Second

// maxStalled is how many requests to a node may be stuck before it gets no more.
const maxStalled = 16

// rest is what the client knows of a node that does not count, or may not answer.
type rest struct {
	until   time.Time // the node need not be asked before
	healing bool
	again   time.Time // when to try again to heal it
	stalled int       // requests that have been called off, and have not returned
	late    bool      // it did not answer the latest request within the time limit
	asking  bool      // it is late, and a round asks whether it still is
}

// resting returns why a node need not be asked.
func (c *Client) resting(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := time.Until(c.rests[i].until); left > 0 {
		return quarantined(left)
	}
	if c.rests[i].stalled >= maxStalled {
		return fmt.Errorf("%w: %d earlier requests have been called off, and have not returned", dblock.ErrUnavailable, c.rests[i].stalled)
	}
	return nil
}

// callOff counts a request that is called off: one that a node does not even see called off, since
// its disk hangs, say, keeps a goroutine. It notes that the node is late, if that is why.
func (c *Client) callOff(i int, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rests[i].stalled++
	c.rests[i].late = c.rests[i].late || late
}

// returned is the end of a request. A node that has answered in time is not late; its client's word
// that it cannot be reached is no answer of the node.
func (c *Client) returned(i int, inTime bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !inTime:
		c.rests[i].stalled--
	case !errors.Is(err, dblock.ErrUnavailable):
		c.rests[i].late = false
	}
}

// suspect reports whether a node was late, and lets one round at a time ask it then, which MUST say
// when it has asked. The others get an error.
func (c *Client) suspect(i int) (late bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.rests[i]
	switch {
	case !r.late:
		return false, nil
	case r.asking:
		return true, errLateBefore
	}
	r.asking = true
	return true, nil
}

// asked ends what suspect has allowed.
func (c *Client) asked(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rests[i].asking = false
}

func quarantined(left time.Duration) error {
	return fmt.Errorf("%w for another %v: it may have lost its data", ErrQuarantined, max(left, time.Millisecond).Round(time.Millisecond))
}

// trust returns the floor of a node that counts. A node counts when it has had its data for as long
// as anybody may still rely on what it forgot, and knows a token that no forgotten one was above.
func (c *Client) trust(ctx context.Context, i int) (floor int64, err error) {
	m, err := c.nodes[i].node.Memory(ctx)
	switch {
	case err != nil:
		return 0, err
	case m.age < c.quarantine:
		left := min(c.quarantine-m.age, c.quarantine) // an age below 0 is a clock that was set back
		c.mu.Lock()
		c.rests[i].until = time.Now().Add(left)
		c.mu.Unlock()
		return 0, quarantined(left)
	case m.floor <= 0:
		c.startHealing(i)
		return 0, fmt.Errorf("%w: it does not know the tokens that were granted before, and learns them from %d others; at the first start of all call Init", ErrQuarantined, c.majority)
	case m.floor == math.MaxInt64:
		return 0, fmt.Errorf("%w: its tokens are used up", dblock.ErrConfig)
	}
	return m.floor, nil
}

// startHealing heals a node in the background, once at a time.
func (c *Client) startHealing(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.rests[i]
	if r.healing || c.closed || time.Now().Before(r.again) {
		return
	}
	r.healing = true
	// Not longer than half a quarantine, so that of two healers, one of whom is late, none counts
	// on the node before the other has written: Renew begins another quarantine.
	ctx, cancel := context.WithTimeout(c.background, min(healLimit, c.quarantine/2))
	c.calls.Go(func() {
		defer cancel()
		floor, err := c.heal(ctx, i)
		c.mu.Lock()
		r.healing = false
		r.again = time.Now().Add(max(c.limit, c.quarantine/8))
		c.mu.Unlock()
		if err != nil {
			c.log.Warn("quorum: a node that lost its data could not be healed yet", "error", c.node(i, err))
			return
		}
		c.log.Info("quorum: a node that lost its data knows the tokens again", "node", c.node(i, nil).place(), "floor", floor, "counts in", c.quarantine)
	})
}

// heal tells a node that forgot them a token that none was above, from a majority of the nodes that
// did not forget. It MUST be called when the node's quarantine is over, and not before: until then
// a holder whom it has forgotten may still be telling its token to others.
func (c *Client) heal(ctx context.Context, i int) (floor int64, err error) {
	var mu sync.Mutex // protects what follows
	var known int
	var failures []error
	var others sync.WaitGroup
	for j, n := range c.nodes {
		if j == i {
			continue
		}
		others.Go(func() {
			highest, err := n.node.Highest(ctx)
			if err == nil {
				_, err = c.settled(ctx, n.node) // after the question, so that it was answered with this memory
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures = append(failures, c.node(j, err))
				return
			}
			known++
			floor = max(floor, highest)
		})
	}
	others.Wait()
	if known < c.majority {
		return 0, fmt.Errorf("%d nodes remember, and %d are needed: %w", known, c.majority, errors.Join(failures...))
	}
	if err := c.nodes[i].node.Renew(ctx, floor); err != nil {
		return 0, err
	}
	return floor, nil
}

// settled returns the memory of a node that counts.
func (c *Client) settled(ctx context.Context, n node) (memory, error) {
	m, err := n.Memory(ctx)
	if err == nil && (m.age < c.quarantine || m.floor <= 0) {
		err = ErrQuarantined
	}
	return m, err
}
