//go:build unix

package fault

import (
	"context"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

const lookInterval = 2 * time.Millisecond

// witness looks again and again at which holds this process believes in.
type witness struct {
	mu    sync.Mutex // protects holds
	holds map[int]*believed
}

type believed struct {
	ctx  context.Context
	live time.Duration
}

func newWitness() *witness {
	w := &witness{holds: map[int]*believed{}}
	go w.run()
	return w
}

// run never ends: an actor does.
func (w *witness) run() {
	for range time.Tick(lookInterval) {
		w.mu.Lock()
		w.look()
		w.mu.Unlock()
	}
}

// look MUST be called with mu locked.
func (w *witness) look() {
	now := session.Boottime() // a context answers by the clock, however late the look comes
	for _, b := range w.holds {
		if b.ctx.Err() == nil {
			b.live = now
		}
	}
}

// add begins to watch a hold that was asked for then.
func (w *witness) add(op int, ctx context.Context, asked time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds[op] = &believed{ctx: ctx, live: asked}
	w.look()
}

// live looks once more, and returns when the hold was last believed in for certain.
func (w *witness) live(op int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
	if b := w.holds[op]; b != nil {
		return b.live
	}
	return 0
}

func (w *witness) remove(op int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.holds, op)
}
