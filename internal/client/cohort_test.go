package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/store"
)

// waitingTogether has requests for a name join its queue as one cohort.
func waitingTogether(s *store.Session, c *Client, name string, n int) (*cohort, []*member) {
	var all []*member
	for range n {
		m, _ := c.cohorts.add(driver.Request{Name: name, Session: s.ID})
		all = append(all, m)
	}
	of, _ := c.cohorts.next(place{s.ID, name}, c.newAttempt(name))
	return of, all
}

// Broken by requests that do not wait for those of their session that have the name: each would
// stand in the queue alone from then on; and by requests that wait for longer than that is worth.
func TestRequestsLingerWhileTheirSessionHasTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := newPaperClient(t, newPaper(), nil)
		s := aliveSession(t, clock.Func(func() time.Duration { return time.Since(began) }))
		heldBack := func() time.Duration {
			from := time.Now()
			c.holdBack(s, "n")
			return time.Since(from)
		}
		if d := heldBack(); d != 0 {
			t.Errorf("held back for %v while nobody has the name", d)
		}
		of, _ := waitingTogether(s, c, "n", 2)
		c.cohorts.begin(of, driver.Grant{First: 1, Token: 2}, 0)
		if d := heldBack(); d != lingering {
			t.Errorf("held back for %v, want %v", d, lingering)
		}
		time.AfterFunc(lingering/5, func() { c.cohorts.end(of) })
		if d := heldBack(); d < lingering/5 || d > lingering/5+2*moment {
			t.Errorf("held back for %v while the name was held for %v", d, lingering/5)
		}
		if d := heldBack(); d != 0 {
			t.Errorf("held back for %v after the end", d)
		}
	})
}

// Broken by a member that is served although the database is about to see the one before it, and by
// one that gets the token of another.
func TestMembersHaveTheLockOneAfterTheOther(t *testing.T) {
	c := newPaperClient(t, newPaper(), nil)
	s := aliveSession(t, c.config.Clock)
	of, all := waitingTogether(s, c, "n", 4)
	if r := of.request(); r.Members != 4 {
		t.Fatalf("%+v", r)
	}
	served := func(m *member) (token int64) {
		select {
		case got := <-m.turn:
			return got.token
		default:
			return 0
		}
	}
	c.cohorts.begin(of, driver.Grant{First: 11, Token: 14}, 0)
	if token := served(all[0]); token != 11 {
		t.Errorf("the first has token %d", token)
	}
	if left, vacant := c.cohorts.leave(all[1]); !left || vacant {
		t.Error(left, vacant)
	}
	noted := 0
	pass := func() bool {
		passed, _ := c.cohorts.pass(of, func() { noted++ })
		return passed
	}
	if !pass() || served(all[1]) != 0 || served(all[2]) != 13 || served(all[3]) != 0 {
		t.Error("the second, who left, was served, or not the third with its own token")
	}
	of.detaching = make(chan struct{})
	if pass() {
		t.Error("the fourth is served while the third is being detached")
	}
	of.detaching = nil
	if !pass() || served(all[3]) != 14 || noted != 2 {
		t.Error("the fourth is not served")
	}
	if pass() || noted != 2 {
		t.Error("passed on to nobody")
	}
}

// Broken by a cohort that counts as the holder after it has been released or lost: requests would
// linger, and not take the name though it is free.
func TestANameIsNotBusyOnceItsCohortIsGone(t *testing.T) {
	for how, end := range map[string]func(t *testing.T, l *Lock){
		"unlocked": func(t *testing.T, l *Lock) {
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"lost": func(_ *testing.T, l *Lock) { l.client.lose(l.hold, errDisowned) },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newPaperClient(t, newPaper(), nil)
				first := acquire(t, t.Context(), c, "n")
				locks := make(chan *Lock, 2)
				for range 2 {
					go func() { locks <- acquire(t, t.Context(), c, "n") }()
					synctest.Wait()
				}
				if err := first.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				s := c.sessions.Alive()
				for range 2 {
					l := <-locks
					if !c.cohorts.busy(place{s.ID, "n"}) {
						t.Error("a cohort has the name, and it is not busy")
					}
					end(t, l)
				}
				synctest.Wait()
				if c.cohorts.busy(place{s.ID, "n"}) {
					t.Error("the name is busy, and nobody has it")
				}
			})
		})
	}
}

// Broken by a heartbeat that has the database show a member which has passed the lock on meanwhile:
// the one that has it then would be lost. And by one that it has show what is being released.
func TestAMemberThatHasPassedTheLockOnIsNotDetached(t *testing.T) {
	c := newPaperClient(t, newPaper(), nil)
	s := aliveSession(t, c.config.Clock)
	of, _ := waitingTogether(s, c, "n", 3)
	c.cohorts.begin(of, driver.Grant{First: 11, Token: 13}, 0)
	of.waiting = of.waiting[:1]
	for token := range int64(2) {
		h := &hold{attempt: of.attempt, in: s, cohort: of}
		h.mode.Store(&mode{token: 11 + token, last: 13})
		c.cohorts.pass(of, func() {})
		if done := c.detach(s, h); done != nil || of.detaching != nil {
			t.Errorf("%d is being detached", token)
		}
	}
}

// leaving is a context that ends when done is closed. Its reader hears that before why.
type leaving struct {
	context.Context
	done chan struct{}
	why  func() error
}

func (l leaving) Done() <-chan struct{} { return l.done }
func (l leaving) Err() error            { return l.why() }

// Broken by a member that has got its turn when it gives up, and keeps it: the name stands still
// for as long as its session lives.
func TestAMemberThatGivesUpAtItsTurnPassesTheLockOn(t *testing.T) {
	for how, behind := range map[string]int{"to the next member": 1, "back, as the last member": 0} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newPaperClient(t, newPaper(), nil)
				s, err := c.sessions.Open(t.Context(), true)
				if err != nil {
					t.Fatal(err)
				}
				c.cohorts.add(driver.Request{Name: "n", Session: s.ID}) // whose statement is in flight, so that nothing is sent
				var of *cohort
				ctx := leaving{t.Context(), make(chan struct{}), func() error {
					if of.present == 11 { // it is about to give up: in that moment it gets its turn
						c.cohorts.pass(of, func() {})
					}
					return context.Canceled
				}}
				gaveUp := make(chan error, 1)
				go func() {
					_, err := c.queueTogether(ctx, s, &driver.Request{Name: "n", Session: s.ID})
					gaveUp <- err
				}()
				synctest.Wait()
				var next *member
				for range behind {
					next, _ = c.cohorts.add(driver.Request{Name: "n", Session: s.ID})
				}
				of, _ = c.cohorts.next(place{s.ID, "n"}, c.newAttempt("n"))
				c.cohorts.begin(of, driver.Grant{First: 11, Token: 12 + int64(behind)}, 0)
				close(ctx.done)
				if err := <-gaveUp; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				synctest.Wait()
				switch {
				case behind == 0 && (of.present != 0 || c.registry.state(of.attempt) != Gone):
					t.Error("nobody has it, and it is not given back")
				case behind == 0:
				case len(next.turn) == 0:
					t.Error("the next member waits for a lock that nobody has")
				case (<-next.turn).token != 13:
					t.Error("the next member has another's token")
				}
			})
		})
	}
}
