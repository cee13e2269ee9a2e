package quorum

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
)

// healLimit bounds the search for the highest token of the other nodes, which read all their locks.
const healLimit = 30 * time.Second

// maxStalled limits the requests to a node that may hang before the node gets no more.
const maxStalled = 16

// nodeState is the client's record of a node that does not count, or may not answer.
type nodeState struct {
	until   time.Time // the node does not count before this time
	healing bool
	again   time.Time // the time of the next try to heal the node
	stalled int       // requests that were cancelled and have not returned
	late    bool      // the latest request was not answered within the time limit
	asking  bool      // the node was late, and a round is asking it
}

// excluded returns the reason why a node is not asked, or nil.
func (c *Client) excluded(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := time.Until(c.states[i].until); left > 0 {
		return quarantined(left)
	}
	if c.states[i].stalled >= maxStalled {
		return fmt.Errorf("%w: %d earlier requests have been called off, and have not returned", dblock.ErrUnavailable,
			c.states[i].stalled)
	}
	return nil
}

// callOff counts a request that is cancelled. Such a request keeps a goroutine until the node
// notices, which a node with a hanging disk, say, does not do. late reports that the reason was a
// missing answer.
func (c *Client) callOff(i int, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states[i].stalled++
	c.states[i].late = c.states[i].late || late
}

// returned ends a request. A node that answered in time is not late. The error of its client that
// the node cannot be reached is no answer of the node.
func (c *Client) returned(i int, inTime bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !inTime:
		c.states[i].stalled--
	case !errors.Is(err, dblock.ErrUnavailable):
		c.states[i].late = false
	}
}

// suspect reports whether a node was late. It lets one round at a time ask such a node, and returns
// an error to the others. The round MUST call asked afterwards.
func (c *Client) suspect(i int) (late bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.states[i]
	switch {
	case !r.late:
		return false, nil
	case r.asking:
		return true, errLateBefore
	}
	r.asking = true
	return true, nil
}

// asked ends the permission of suspect.
func (c *Client) asked(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states[i].asking = false
}

func quarantined(left time.Duration) error {
	return fmt.Errorf("%w for another %v: it may have lost its data", ErrQuarantined,
		max(left, time.Millisecond).Round(time.Millisecond))
}

// trust returns the floor of a node, or an error if the node does not count. A node counts when its
// data is so old that no client relies on grants that the node may have forgotten, and when the
// node has a floor, which no forgotten token was above.
func (c *Client) trust(ctx context.Context, i int) (floor int64, err error) {
	m, err := c.nodes[i].node.Memory(ctx)
	switch {
	case err != nil:
		return 0, err
	case m.age < c.quarantine:
		left := min(c.quarantine-m.age, c.quarantine) // an age below 0: the clock was set back
		c.mu.Lock()
		c.states[i].until = time.Now().Add(left)
		c.mu.Unlock()
		return 0, quarantined(left)
	case m.floor <= 0:
		c.startHealing(i)
		return 0, fmt.Errorf("%w: it does not know the tokens that were granted before, and learns them from %d "+
			"others; at the first start of all call Init", ErrQuarantined, c.majority)
	case m.floor == math.MaxInt64:
		return 0, fmt.Errorf("%w: its tokens are used up", dblock.ErrConfig)
	}
	return m.floor, nil
}

// startHealing heals a node in the background, unless it is being healed.
func (c *Client) startHealing(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.states[i]
	if r.healing || c.closed || time.Now().Before(r.again) {
		return
	}
	r.healing = true
	// The limit is half a quarantine: of two healers, one of them late, neither counts on the node
	// before the other has written. Renew begins another quarantine.
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
		c.log.Info("quorum: a node that lost its data knows the tokens again", "node", c.node(i, nil).place(), "floor",
			floor, "counts in", c.quarantine)
	})
}

// heal writes a floor to a node that has forgotten its tokens: a token that no forgotten token was
// above, from a majority of the nodes that remember. It MUST be called after the node's quarantine,
// and not before: until then a holder that the node has forgotten may still be writing its token to
// others.
func (c *Client) heal(ctx context.Context, i int) (floor int64, err error) {
	var mu sync.Mutex // protects the variables below
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
				_, err = c.settled(ctx, n.node) // after Highest, so that this memory is the one that answered
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
		return 0, fmt.Errorf("%d nodes remember, and %d are needed: %w", known, c.majority, driver.Join(failures...))
	}
	if err := c.nodes[i].node.Renew(ctx, floor); err != nil {
		return 0, err
	}
	return floor, nil
}

// settled returns the memory of a node, or an error if the node does not count.
func (c *Client) settled(ctx context.Context, n node) (memory, error) {
	m, err := n.Memory(ctx)
	if err == nil && (m.age < c.quarantine || m.floor <= 0) {
		err = ErrQuarantined
	}
	return m, err
}
