package quorum

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	defaultLimit      = time.Second
	defaultPatience   = 15 * time.Second
	defaultQuarantine = time.Minute
	minNodes          = 3
)

// Option configures a Client.
type Option func(*config)

type config struct {
	limit, patience, quarantine time.Duration
	log                         *slog.Logger
}

// WithNodeLimit sets how long a node may take to lock or to unlock before the answer counts as
// missing: at least 10 ms. The first lock of a node's client has to connect within it. Default: 1
// s.
func WithNodeLimit(d time.Duration) Option { return func(c *config) { c.limit = d } }

// WithPatience sets how long Lock goes on while no majority of the nodes is available. 0: it fails
// at once. Default: 15 s.
func WithPatience(d time.Duration) Option { return func(c *config) { c.patience = d } }

// WithQuarantine sets how long a node does not count after it may have lost its data: at least
// twice the longest TTL of any client of any node in any process. New checks the TTLs of its own
// nodes' clients. It MUST be the same wherever these nodes are used. Default: 1 min, for TTLs up to
// 30 s.
func WithQuarantine(d time.Duration) Option { return func(c *config) { c.quarantine = d } }

// WithLogger sets the logger for nodes that the client lost, healed, or could not heal. No lock
// waits for it, as with dblock.WithLogger. Default: slog.Default.
func WithLogger(log *slog.Logger) Option { return func(c *config) { c.log = log } }

func newConfig(options []Option) (config, error) {
	c := config{limit: defaultLimit, patience: defaultPatience, quarantine: defaultQuarantine, log: slog.Default()}
	for _, o := range options {
		if o == nil {
			return c, fmt.Errorf("quorum: %w: a nil Option", dblock.ErrInvalidOption)
		}
		o(&c)
	}
	switch {
	case c.limit < 10*time.Millisecond:
		return c, fmt.Errorf("quorum: %w: WithNodeLimit(%v): want at least 10ms", dblock.ErrInvalidOption, c.limit)
	case c.patience < 0:
		return c, fmt.Errorf("quorum: %w: WithPatience(%v): want 0 or more", dblock.ErrInvalidOption, c.patience)
	case c.quarantine < 2*time.Second:
		return c, fmt.Errorf("quorum: %w: WithQuarantine(%v): want at least 2s, twice the shortest TTL there is",
			dblock.ErrInvalidOption, c.quarantine)
	case c.log == nil:
		return c, fmt.Errorf("quorum: %w: WithLogger(nil): want a logger, slog.DiscardHandler for silence",
			dblock.ErrInvalidOption)
	}
	return c, nil
}

// check returns an error if the nodes cannot make a quorum.
func check(nodes []Node) error {
	if len(nodes) < minNodes || len(nodes)%2 == 0 {
		return fmt.Errorf("quorum: %w: %d nodes: want 3 or 5 (one more than an odd number survives no more failures)",
			dblock.ErrInvalidOption, len(nodes))
	}
	seen := map[any]int{}
	for i, n := range nodes {
		if n.node == nil {
			return fmt.Errorf("quorum: %w: node %d is none: use On", dblock.ErrInvalidOption, i+1)
		}
		if before, twice := seen[n.client]; twice && n.client != nil {
			return fmt.Errorf("quorum: %w: nodes %d and %d are the same client", dblock.ErrInvalidOption, before, i+1)
		}
		seen[n.client] = i + 1
	}
	return nil
}

// majority returns the smallest size at which any two sets among n nodes have one in common.
func majority(n int) int { return n/2 + 1 }
