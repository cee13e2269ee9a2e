package sessionlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var errAway = driver.Fail(driver.ErrUnavailable, errors.New("away"))

// gone has a server that is away, or back.
func (b *bench) gone(err error) {
	b.do(func() { b.away = err })
	if err != nil {
		b.cut()
	}
}

// lasts is how long a call takes until it fails.
func (b *bench) lasts(began time.Time, c *call) time.Duration {
	b.Helper()
	<-c.done
	require.ErrorIs(b, c.err, driver.ErrUnavailable, c.p)
	return time.Since(began)
}

// Broken by counting the breaks that a wait has survived.
func TestAWaitOutlivesAnyNumberOfBreaks(t *testing.T) {
	for name, apart := range map[string]time.Duration{"far apart": time.Hour,
		"one after the other": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			in(t, func(b *bench) {
				one, two := b.keeper(), b.keeper()
				p := b.lock(one, "n", alone)
				c, behind := b.begin(two, "n", alone), b.begin(two, "n", shared)
				for range 200 {
					b.cutWaiters()
					time.Sleep(apart)
					b.waits(c, behind)
				}
				time.Sleep(time.Second)
				b.unlock(p)
				b.unlock(b.has(c))
				b.unlock(b.has(behind))
			})
		})
	}
}

// Broken by a second failure that ends the wait, and by a series that goes on when the wait stands
// again.
func TestAWaitOutlivesEveryAbsenceThatIsShorterThanTheTTL(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		c := (*call)(nil)
		for range 5 {
			b.lock(one, "n", alone)
			if c == nil {
				c = b.begin(two, "n", alone)
			}
			b.gone(errAway)
			time.Sleep(patience - longestPause)
			b.waits(c)
			if got := b.tries; got > 200 {
				b.Errorf("%d tries", got)
			}
			b.gone(nil)
			other := b.begin(one, "n", alone) // one of the two is first
			time.Sleep(2 * longestPause)
			first, second := c, other
			if synctest.Wait(); other.returned() {
				first, second = other, c
			}
			p := b.has(first)
			b.waits(second)
			b.unlock(p)
			b.unlock(b.has(second))
			c = nil
		}
	})
}

func TestAnAbsenceThatIsLongerThanTheTTLFailsAllWhoWait(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		p := b.lock(one, "n", alone)
		calls := []*call{b.begin(two, "n", alone), b.begin(two, "n", shared)}
		time.Sleep(time.Hour) // of waiting, which is none of the absence
		began := time.Now()
		b.gone(errAway)
		time.Sleep(patience / 2)
		calls = append(calls, b.begin(two, "n", alone))
		for i, c := range calls {
			if took := b.lasts(began, c); took < patience || took > patience+2*longestPause {
				b.Errorf("call %d failed after %v", i, took)
			}
			assert.ErrorIs(b, c.err, errAway, "call", i)
		}
		assert.ErrorIs(b, p.Release(context.Background()), driver.ErrNotHeld)
		began = time.Now() // a new one has a TTL of its own
		if took := b.lasts(began, b.begin(two, "m", alone)); took < patience || took > patience+2*longestPause {
			b.Errorf("a new one failed after %v", took)
		}
		b.gone(nil)
		b.unlock(b.lock(two, "n", alone))
	})
}

func TestWhoeverDoesNotWaitIsToldOfAnAbsenceAtOnceAndSoIsAClientThatIsNew(t *testing.T) {
	in(t, func(b *bench) {
		k := b.keeper()
		b.unlock(b.lock(k, "n", alone))
		b.gone(errAway)
		time.Sleep(time.Second)
		began := time.Now()
		if _, ok, err := k.Acquire(context.Background(), "n", alone, false); ok || !errors.Is(err, errAway) {
			b.Errorf("TryLock: %v, %v", ok, err)
		}
		if _, ok, err := b.keeper().Acquire(context.Background(), "n", alone, true); ok || !errors.Is(err, errAway) {
			b.Errorf("a new client: %v, %v", ok, err)
		}
		if took := time.Since(began); took > 0 {
			b.Errorf("it took %v", took)
		}
		c := b.begin(k, "n", alone)
		b.waits(c)
		began = time.Now()
		c.cancel()
		if <-c.done; !errors.Is(c.err, context.Canceled) || time.Since(began) > 0 {
			b.Errorf("after %v: %v", time.Since(began), c.err)
		}
		b.gone(nil)
	})
}

// A server that answers and refuses is no server that was in order again: the series goes on.
func TestARefusalOfEachWaitEndsAfterATTL(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		p := b.lock(one, "n", alone)
		b.unlock(b.lock(two, "m", alone))
		began := time.Now()
		c := b.begin(two, "n", alone)
		for done := false; !done; {
			b.cutWaiters() // as soon as it stands
			select {
			case <-c.done:
				done = true
			case <-time.After(time.Millisecond):
			}
		}
		if took := b.lasts(began, c); took < patience || took > patience+2*longestPause {
			b.Errorf("it failed after %v", took)
		}
		b.unlock(p)
	})
}

// Broken by staying in the server's queue while the lock cannot be taken.
func TestAClientWithoutItsConnectionHoldsUpNobody(t *testing.T) {
	in(t, func(b *bench) {
		one, two, three := b.keeper(), b.keeper(), b.keeper()
		p := b.lock(one, "n", alone)
		b.unlock(b.lock(two, "m", alone))
		b.unlock(b.lock(three, "m", alone))
		first, second := b.begin(two, "n", alone), b.begin(three, "n", alone)
		b.do(func() {
			b.refuse = errAway
			b.pins[1].dead = errors.New("cut")
		})
		b.unlock(p)
		time.Sleep(time.Second)
		b.waits(first)
		p = b.has(second)
		b.do(func() { b.refuse = nil })
		b.unlock(p)
		<-first.done
		b.unlock(b.has(first))
	})
}

// A connection may have ended a moment ago, and not been found lost yet: a request that does not
// wait must not fail for that.
func TestATryIsSentAgainWhereItsConnectionWasLost(t *testing.T) {
	in(t, func(b *bench) {
		k := b.keeper()
		b.unlock(b.lock(k, "n", alone))
		b.do(func() { b.pins[0].dead = errors.New("cut") }) // before it is watched
		if !b.try(k, "n", alone) {
			b.Error("it is free")
		}
		assert.Equal(b, len(b.pins), 2, "connections")
	})
}

// Its connection survived what became of the server that has the locks now: a place in the old
// one's queue is none.
func TestAnIdleWaiterOnAnotherServerIsClosed(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		p := b.lock(one, "n", alone)
		c := b.begin(two, "n", alone)
		b.unlock(p)
		b.unlock(b.has(c))
		b.do(func() {
			b.name = "b"
			for _, p := range b.pins {
				p.close()
			}
		})
		time.Sleep(time.Second) // shorter than linger
		p = b.lock(one, "n", alone)
		b.unlock(b.lock(two, "m", alone))
		tries := b.tries
		c = b.begin(two, "n", alone)
		if b.tries != tries+1 {
			b.Errorf("%d connections were opened to wait on", b.tries-tries)
		}
		b.unlock(p)
		b.unlock(b.has(c))
	})
}
