package deadlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
)

const (
	// batchWindow limits how early a waiter's first check may join a statement that is sent for
	// another waiter. For later checks the limit is a quarter of the pause since the last one, so
	// that the checks of long waiters soon share their statements.
	batchWindow = 50 * time.Millisecond
	// recheckDelay is the pause before a cycle that was found is checked again. A waiter that was
	// about to be granted its request, or to give up, is gone by then.
	recheckDelay = 20 * time.Millisecond
	// batchSize limits the places that one statement asks about.
	batchSize = 1000
)

// Store is the part of an engine that the detector needs.
type Store interface {
	WaitGraph(ctx context.Context, from []driver.Waiting) ([]driver.Wait, error)
}

// Config is the same for all detectors of a client.
type Config struct {
	After  time.Duration // from joining the queue to the first check; 0: no checks
	Limit  time.Duration // of each statement
	Clock  clock.Clock
	Report *outage.Report
}

// Detector checks all waiters of one session, with one statement at a time.
type Detector struct {
	store  Store
	config Config
	ctx    context.Context
	done   sync.WaitGroup
	wake   chan struct{} // the loop has to look at the watches now

	mu      sync.Mutex // protects the fields below
	started bool
	asleep  time.Duration     // when the loop wakes up
	watches map[string]*Watch // by attempt
}

// Watch is one waiting attempt.
type Watch struct {
	C chan Cycle // receives once, if the attempt must give up

	waiting driver.Waiting
	due     time.Duration // by the clock
	pause   time.Duration // between its last check and the next one
}

// New makes a detector that ends with ctx. Nothing runs before the first Watch.
func New(ctx context.Context, store Store, config Config) *Detector {
	return &Detector{store: store, config: config, ctx: ctx, wake: make(chan struct{}, 1), watches: map[string]*Watch{}}
}

// Watch schedules the first check of an attempt that has joined the queue of a name.
func (d *Detector) Watch(name, attempt string) *Watch {
	waiting := driver.Waiting{Name: name, Attempt: attempt}
	w := &Watch{waiting: waiting, pause: d.config.After, due: d.config.Clock.Now() + d.config.After}
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
	if w.due < d.asleep {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
	return w
}

// Forget ends a watch.
func (d *Detector) Forget(w *Watch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.watches, w.waiting.Attempt)
}

// Wait returns when no goroutine of the detector runs any more. Its context must have ended.
func (d *Detector) Wait() {
	d.mu.Lock()
	started := d.started // a later Watch finds that the context has ended
	d.mu.Unlock()
	if started {
		d.done.Wait()
	}
}

func (d *Detector) loop() {
	timer := d.config.Clock.NewTimer(d.config.After)
	defer timer.Stop()
	for {
		due, pause := d.next()
		for part := range slices.Chunk(due, batchSize) {
			d.check(part)
		}
		if len(due) > 0 {
			continue
		}
		timer.Reset(pause)
		select {
		case <-d.ctx.Done():
			return
		case <-d.wake:
		case <-timer.C:
		}
	}
}

// next returns the places that are due, and schedules their next checks. If none is due, it
// returns the time until one is.
func (d *Detector) next() (due []driver.Waiting, pause time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	pause = time.Hour
	if d.ctx.Err() != nil {
		return nil, 0
	}
	now := d.config.Clock.Now()
	for _, w := range d.watches {
		pause = min(pause, w.due-now)
	}
	if pause > 0 {
		d.asleep = now + pause
		return nil, pause
	}
	for _, w := range d.watches {
		early := min(batchWindow, d.config.After/4)
		if w.pause > d.config.After {
			early = w.pause / 4
		}
		if w.due-now <= early {
			due = append(due, w.waiting)
			w.pause *= 2
			w.due = now + w.pause
		}
	}
	return due, 0
}

// check notifies the attempts that must give up. It looks for cycles twice: a cycle counts if both
// results have it.
func (d *Detector) check(places []driver.Waiting) {
	found, err := d.query(places)
	if len(found) > 0 && err == nil {
		select {
		case <-d.ctx.Done():
			return
		case <-time.After(recheckDelay):
		}
		var again map[string]Cycle
		if again, err = d.query(places); err == nil {
			d.notify(found, again)
		}
	}
	switch {
	case err == nil:
		d.config.Report.Worked()
	case d.ctx.Err() == nil:
		d.config.Report.Failed(err)
		d.retry(places)
	}
}

// query looks for cycles with one statement for all places.
func (d *Detector) query(places []driver.Waiting) (map[string]Cycle, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.config.Limit)
	defer cancel()
	waits, err := d.store.WaitGraph(ctx, places)
	if err != nil {
		return nil, err
	}
	found, stuck := Find(waits, driver.Attempts(places))
	d.mu.Lock()
	defer d.mu.Unlock()
	for attempt := range stuck { // the cycle may go on after another attempt has given up
		d.reschedule(attempt)
	}
	return found, nil
}

// reschedule makes an attempt due after Config.After, and restarts its doubling pauses from there.
// MUST be called with mu locked.
func (d *Detector) reschedule(attempt string) {
	if w := d.watches[attempt]; w != nil {
		w.pause = d.config.After
		w.due = d.config.Clock.Now() + w.pause
	}
}

func (d *Detector) notify(found, again map[string]Cycle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for attempt, cycle := range found {
		w := d.watches[attempt]
		switch {
		case w == nil:
		case slices.Equal(cycle, again[attempt]):
			delete(d.watches, attempt)
			w.C <- cycle
		default: // another cycle by now, or none
			d.reschedule(attempt)
		}
	}
}

// retry reschedules the attempts of a check that failed.
func (d *Detector) retry(places []driver.Waiting) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range places {
		d.reschedule(p.Attempt)
	}
}
