package quorum

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	fakeTTL        = 4 * time.Second
	fakeQuarantine = 10 * time.Second
	fakeLimit      = 500 * time.Millisecond
)

var (
	errDown    = fmt.Errorf("%w: down", dblock.ErrUnavailable)
	errCrashed = errors.New("the process has crashed")
)

// process is a program with a client of each server. It may crash between any two of its steps.
type process struct {
	id  int
	rng *dice

	mu      sync.Mutex // protects what follows
	fuse    int        // steps until it crashes; negative: it does not
	crashed bool
	stops   int // how often it was stopped for a while
}

// step is a point at which the process may crash, or be stopped for a while.
func (p *process) step() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fuse == 0 {
		p.crashed = true
	}
	p.fuse--
	if p.crashed {
		return errCrashed
	}
	return nil
}

func (p *process) stop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rng.calm || p.rng.n(50) > 0 {
		return false
	}
	p.stops++
	return true
}

func (p *process) stopped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stops
}

func (p *process) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.crashed
}

// dice are random numbers for several goroutines.
type dice struct {
	calm bool // nothing happens that is not in the script
	mu   sync.Mutex
	r    *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// upTo is longer than 0, so that things happen one after the other.
func (d *dice) upTo(limit time.Duration) time.Duration { return time.Duration(1 + d.n(int(limit))) }
