package inspect

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/wait"
)

// Watch yields a name as Lock shows it, first as it is, and then whenever the name has changed or
// Record was called for it, until ctx ends: the last value has the error of ctx. Watch survives
// failovers, unless the client has not reached its database yet.
//
// Record and Break wake Watch, and so does the end of the holder's lease. For other changes Watch
// reads the name a few times in each TTL; in a client that polls, ten times a second. Of several
// changes in quick succession it may show the last only. It repeats an unchanged name a few times
// in each TTL, since a notification can be lost: to miss no event, read Events for each value.
func (i *Inspector) Watch(ctx context.Context, name string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		w := watch{Inspector: i, name: name, yield: yield}
		if err := w.run(ctx); err != nil {
			yield(Info{}, &dblock.LockError{Op: "watch", Name: name, Err: err})
		}
	}
}

// watch is one call of Watch.
type watch struct {
	*Inspector
	name  string
	yield func(Info, error) bool

	last  string    // the fingerprint of the latest value
	shown time.Time // when it was yielded
}

// run watches in one session after the other, until ctx ends or yield returns false: nil.
func (w *watch) run(ctx context.Context) error {
	if ctx == nil {
		return contract.ErrNilContext
	}
	if w.client == nil {
		return client.ErrNone
	}
	db := w.client.Store()
	for first := true; ; first = false {
		err := w.inSession(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() == nil && db.Transient(err) && (!first || db.HadSession()): // a failover
			store.Pause(ctx, 100*time.Millisecond)
		default:
			return err
		}
	}
}

// inSession watches until the session ends.
func (w *watch) inSession(ctx context.Context) error {
	// The end of an earlier registration may still be in flight: each has an id of its own.
	id := rand.Text()
	s, watcher, err := w.begin(ctx, id)
	if err != nil {
		return err
	}
	defer w.end(s, watcher, id)
	for {
		if more, err := w.show(ctx, watcher.Hinted()); err != nil || !more {
			return err
		}
		select {
		case <-watcher.News:
		case <-ctx.Done():
			return ctx.Err()
		case <-w.client.Store().Background.Done():
			return dblock.ErrClosed
		case <-s.Context().Done():
			return driver.Fail(driver.ErrUnavailable, store.ErrSessionOver)
		}
	}
}

// show reads the name, and yields it if that is due. hinted: the name was notified.
func (w *watch) show(ctx context.Context, hinted bool) (more bool, err error) {
	info, err := w.Lock(ctx, w.name)
	if err != nil {
		return false, err
	}
	now := fingerprint(info)
	if !hinted && now == w.last && time.Since(w.shown) <= w.client.TTL()/4 {
		return true, nil
	}
	w.last, w.shown = now, time.Now()
	return w.yield(info, nil), nil
}

// begin registers the watch for the session that is alive.
func (w *watch) begin(ctx context.Context, id string) (s *store.Session, watcher *wait.Watcher, err error) {
	db := w.client.Store()
	if err := db.Begin(); err != nil {
		return nil, nil, err
	}
	defer db.Done()
	err = db.Quickly(ctx, func(ctx context.Context) (err error) {
		if s, err = w.client.Sessions().Open(ctx, true); err != nil {
			return err
		}
		return db.Engine.Watch(ctx, s.ID, w.name, id)
	})
	if err != nil {
		return nil, nil, err
	}
	return s, s.Waiters().Watch(w.name, id), nil
}

// end removes the registration in the background. A registration that stays ends with its session.
func (w *watch) end(s *store.Session, watcher *wait.Watcher, id string) {
	s.Waiters().Unwatch(watcher)
	db := w.client.Store()
	if db.Begin() != nil {
		return
	}
	go func() {
		defer db.Done()
		_ = db.Call(db.Tidying, func(ctx context.Context) error { return db.Engine.Unwatch(ctx, w.name, id) })
	}()
}

// fingerprint returns equal texts for values that differ only in the time that is left.
func fingerprint(i Info) string {
	text := fmt.Sprint(i.Token, i.Capacity)
	for _, participant := range append(i.Holders, i.Waiters...) {
		participant.Until = time.Time{}
		text += fmt.Sprint(participant)
	}
	return text
}
