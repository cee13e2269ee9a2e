package deadlock

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/driver"
)

const (
	// together is how much earlier than he is due somebody is looked for at first, where the
	// statement is sent for another anyway. Later it is a quarter of the time since the look
	// before: those who wait long are soon looked for together.
	together = 50 * time.Millisecond
	// recheck is the pause before a circle that was found is looked for again: one who was about to
	// be granted what he waits for, or had given up, has gone by then.
	recheck = 20 * time.Millisecond
	// most is how many attempts one statement asks about.
	most = 1000
)

// Store is what looking for deadlocks needs of an engine.
type Store interface {
	Waits(ctx context.Context, attempts []string) ([]driver.Wait, error)
}

// Config is the same for all detectors of a client.
type Config struct {
	After time.Duration // how long somebody waits before he looks; 0: never
	Limit time.Duration // of each statement
	Log   *slog.Logger
}

// Detector looks for all waiters of one session, with one statement at a time.
type Detector struct {
	store  Store
	config Config
	ctx    context.Context
	done   sync.WaitGroup
	stir   chan struct{} // there is an earlier time to wake up at

	mu      sync.Mutex // protects what follows
	started bool
	asleep  time.Time         // until when the loop sleeps
	watches map[string]*Watch // by attempt
}

// Watch is one attempt that waits.
type Watch struct {
	C chan Cycle // receives once, if the attempt has to give up

	attempt string
	due     time.Time
	pause   time.Duration // until it is due once more
}

// New makes a detector that ends with ctx. Nothing runs until somebody waits.
func New(ctx context.Context, store Store, config Config) *Detector {
	return &Detector{store: store, config: config, ctx: ctx, stir: make(chan struct{}, 1), watches: map[string]*Watch{}}
}

// Watch begins to count an attempt's time in the queue.
func (d *Detector) Watch(attempt string) *Watch {
	w := &Watch{attempt: attempt, pause: d.config.After, due: time.Now().Add(d.config.After)}
	if d.config.After == 0 {
		return w
	}
	w.C = make(chan Cycle, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return w
	}
	if !d.started {
		d.started = true
		d.done.Go(d.loop)
	}
	d.watches[attempt] = w
	if w.due.Before(d.asleep) {
		select {
		case d.stir <- struct{}{}:
		default:
		}
	}
	return w
}

// Forget ends a watch.
func (d *Detector) Forget(w *Watch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.watches, w.attempt)
}

// Wait returns when nothing of the detector runs any more; its context must have ended.
func (d *Detector) Wait() {
	d.mu.Lock()
	started := d.started // whoever comes after this sees that the context has ended, and starts nothing
	d.mu.Unlock()
	if started {
		d.done.Wait()
	}
}

func (d *Detector) loop() {
	for {
		due, pause := d.next()
		for part := range slices.Chunk(due, most) {
			d.look(part)
		}
		if len(due) > 0 {
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-d.ctx.Done():
			timer.Stop()
			return
		case <-d.stir:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// next returns the attempts that are due, and when they are due again; or how long none will be.
func (d *Detector) next() (due []string, pause time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	pause = time.Hour
	if d.ctx.Err() != nil {
		return nil, 0
	}
	now := time.Now()
	for _, w := range d.watches {
		pause = min(pause, w.due.Sub(now))
	}
	if pause > 0 {
		d.asleep = now.Add(pause)
		return nil, pause
	}
	for attempt, w := range d.watches {
		early := min(together, d.config.After/4)
		if w.pause > d.config.After {
			early = w.pause / 4
		}
		if w.due.Sub(now) <= early {
			due = append(due, attempt)
			w.pause *= 2
			w.due = now.Add(w.pause)
		}
	}
	return due, 0
}

// look tells those who have to give up, after it has looked twice.
func (d *Detector) look(attempts []string) {
	found, err := d.find(attempts)
	if len(found) > 0 && err == nil {
		select {
		case <-d.ctx.Done():
			return
		case <-time.After(recheck):
		}
		var again map[string]Cycle
		if again, err = d.find(attempts); err == nil {
			d.tell(found, again)
		}
	}
	if err != nil && d.ctx.Err() == nil {
		d.config.Log.Warn("dblock: looking for deadlocks failed", "error", err)
		d.postpone(attempts)
	}
}

// find asks once for all. Who waits longest gives nothing up: of each circle only one is found.
func (d *Detector) find(attempts []string) (map[string]Cycle, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.config.Limit)
	defer cancel()
	waits, err := d.store.Waits(ctx, attempts)
	if err != nil {
		return nil, err
	}
	found, stuck := Find(waits, attempts)
	d.mu.Lock()
	defer d.mu.Unlock()
	for attempt := range stuck { // whoever gives up may not be enough
		d.again(attempt)
	}
	return found, nil
}

// again makes an attempt due after one interval. MUST be called with mu locked.
func (d *Detector) again(attempt string) {
	if w := d.watches[attempt]; w != nil {
		w.pause = d.config.After
		w.due = time.Now().Add(w.pause)
	}
}

func (d *Detector) tell(found, again map[string]Cycle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for attempt, cycle := range found {
		w := d.watches[attempt]
		switch {
		case w == nil:
		case slices.Equal(cycle, again[attempt]):
			delete(d.watches, attempt)
			w.C <- cycle
		default: // another circle by now, or none
			d.again(attempt)
		}
	}
}

// postpone makes up for a look that failed.
func (d *Detector) postpone(attempts []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, attempt := range attempts {
		d.again(attempt)
	}
}
