package sessionlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// attend starts the goroutine that waits for the first request of a line, and for each later one
// that becomes the first. MUST be called with mu locked.
func (k *Keeper[K]) attend(l *line[K]) {
	if k.closed {
		k.dismiss(l)
		return
	}
	l.attended = true
	// behind a waiting request, the lock is not available without waiting
	for i := 1; i < len(l.queue); {
		if r := l.queue[i]; !r.wait {
			k.remove(l, r, nil, nil)
		} else {
			i++
		}
	}
	k.running.Go(func() { k.wait(l) })
}

// wait serves a line's queue until it is empty.
func (k *Keeper[K]) wait(l *line[K]) {
	var w Waiter[K]
	// made while w is the first of the server's queue, closed when w has left it
	var place chan struct{}
	var t trouble
	for {
		r, ctx, cancel, leave := k.begin(l, place)
		switch {
		case leave:
			w, place = k.leave(l, w, place), nil
			continue
		case r == nil:
			k.putBack(w)
			return
		}
		t.rest(ctx)
		began, stood := time.Now(), time.Duration(0)
		var err error
		if w == nil {
			w, err = k.waiter(ctx)
		}
		switch {
		case err != nil:
		case w == nil:
			err = k.lookAgain(l)
		default:
			began = time.Now()
			err = w.Wait(ctx, l.key, r.shared)
			stood = time.Since(began)
			if err != nil {
				w, place = k.discard(w), nil
				break
			}
			if place == nil {
				place = make(chan struct{})
			}
			var last bool
			if last, err = k.takeFirst(l, place); last {
				w, place = k.leave(l, w, place), nil
			}
		}
		interrupted := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			t = trouble{}
		case !interrupted:
			if again := t.add(began.Add(stood), stood); again && place != nil {
				// other clients need not wait because this client cannot take the lock
				w, place = k.leave(l, w, place), nil
			}
			k.fail(l, r, err, t.over(k.ttl))
		}
	}
}

// begin returns the request to wait for, and a context that ends when the wait is no longer needed.
// leave: no request needs the place in the server's queue any more, which must be left first. With
// neither, the line has no waiting request and is no longer attended.
func (k *Keeper[K]) begin(
	l *line[K], place chan struct{},
) (r *request[K], ctx context.Context, cancel context.CancelFunc, leave bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(l.queue) > 0 && l.queue[0].wait && !k.closed {
		ctx, cancel = context.WithCancel(k.ctx)
		l.interrupt = cancel
		return l.queue[0], ctx, cancel, false
	}
	if place != nil {
		return nil, nil, nil, true
	}
	l.attended = false
	if k.closed {
		k.dismiss(l)
	}
	k.advance(l)
	k.forget(l)
	return nil, nil, nil, false
}

// leave leaves the server's queue, if necessary by closing the connection.
func (k *Keeper[K]) leave(l *line[K], w Waiter[K], place chan struct{}) Waiter[K] {
	defer close(place)
	ctx, cancel := context.WithTimeout(k.ctx, answerTimeout)
	defer cancel()
	if w.Leave(ctx, l.key) != nil {
		return k.discard(w)
	}
	return w
}

// fail settles a request whose wait failed, unless the failure may be temporary. If the trouble has
// lasted too long, fail settles all requests of the line.
func (k *Keeper[K]) fail(l *line[K], r *request[K], err error, over bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	passes := k.passes(err)
	for _, waiting := range slices.Clone(l.queue) {
		if waiting == r && !passes || over && passes {
			k.remove(l, waiting, nil, err)
		}
	}
}

// takeFirst takes the lock for the first request of the line. The waiter is the first of the
// server's queue and saw the lock free. With a share, takeFirst also takes shares for the requests
// directly behind that want one. leave is false if a session that ignores the queue has taken the
// lock meanwhile, or if the next request wants the other mode. err is that of the first request.
func (k *Keeper[K]) takeFirst(l *line[K], place chan struct{}) (leave bool, err error) {
	k.mu.Lock()
	l.interrupt = nil
	k.mu.Unlock()
	shared := false
	for first := true; ; first = false {
		k.mu.Lock()
		if len(l.queue) == 0 || k.closed || !first && !(shared && l.queue[0].shared) {
			k.mu.Unlock()
			return true, nil
		}
		r := l.queue[0]
		shared = r.shared
		// the wait was for a share, and the first request now wants the whole lock
		if !l.admits(shared) {
			k.mu.Unlock()
			return !first, nil
		}
		taken := make(chan bool, 1)
		k.send(l, r, Take, place, func(ok bool, failure error) {
			if first {
				err = failure
			}
			taken <- ok
		})
		k.mu.Unlock()
		if !<-taken {
			return !first, err
		}
	}
}

// lookAgain tries the first request without a waiter.
func (k *Keeper[K]) lookAgain(l *line[K]) (err error) {
	k.mu.Lock()
	if len(l.queue) == 0 || k.closed || !l.admits(l.queue[0].shared) {
		k.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	l.interrupt = nil
	k.send(l, l.queue[0], Try, nil, func(_ bool, failure error) {
		err = failure
		close(done)
	})
	k.mu.Unlock()
	<-done
	return err
}

// waiter returns an idle or a new connection to wait on. If there are too many, it returns nil
// without an error, after a while.
func (k *Keeper[K]) waiter(ctx context.Context) (Waiter[K], error) {
	select {
	case k.slots <- struct{}{}:
	default:
		timer := time.NewTimer(lookAgain/2 + rand.N(lookAgain))
		defer timer.Stop()
		select {
		case k.slots <- struct{}{}:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	k.mu.Lock()
	var server string
	if k.pin != nil {
		server = k.pin.server
	}
	for len(k.idle) > 0 {
		w := k.idle[len(k.idle)-1]
		k.idle = k.idle[:len(k.idle)-1]
		if w.timer.Stop() && (server == "" || w.Server() == server) {
			k.mu.Unlock()
			return w.Waiter, nil
		}
		k.running.Go(w.Close)
	}
	k.mu.Unlock()
	connect, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	w, err := k.server.Waiter(connect)
	switch {
	case err == nil && server != "" && w.Server() != server:
		k.discard(w)
		return nil, driver.Fail(driver.ErrUnavailable, fmt.Errorf("%w: %s and %s", errElsewhere, server, w.Server()))
	case err != nil && connect.Err() != nil && ctx.Err() == nil:
		err = driver.Fail(driver.ErrUnavailable, err)
	}
	if err != nil {
		<-k.slots
		return nil, err
	}
	k.mu.Lock()
	k.reached = true
	k.mu.Unlock()
	return w, nil
}

var errElsewhere = errors.New("two connections of this client reached two servers, and locks of one are nothing to " +
	"the other")

// discard closes a waiter's connection that is in use.
func (k *Keeper[K]) discard(w Waiter[K]) Waiter[K] {
	w.Close()
	<-k.slots
	return nil
}

// idleWaiter is a connection to wait on that no name needs now. The timer closes it.
type idleWaiter[K comparable] struct {
	Waiter[K]
	timer *time.Timer
}

// putBack keeps a waiter for a while: another name may need it.
func (k *Keeper[K]) putBack(w Waiter[K]) {
	if w == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	<-k.slots
	if k.closed {
		k.running.Go(w.Close)
		return
	}
	i := &idleWaiter[K]{Waiter: w}
	i.timer = time.AfterFunc(linger, func() { k.retire(i) })
	k.idle = append(k.idle, i)
}

// retire closes an idle waiter after linger.
func (k *Keeper[K]) retire(i *idleWaiter[K]) {
	k.mu.Lock()
	for at, w := range k.idle {
		if w == i {
			k.idle = append(k.idle[:at], k.idle[at+1:]...)
			k.running.Go(i.Close)
			break
		}
	}
	k.mu.Unlock()
}
