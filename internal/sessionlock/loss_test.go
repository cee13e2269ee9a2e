package sessionlock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/testlog"
)

func TestALossIsToldToAllAndNotToThoseWhoWait(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		first, second := b.lock(one, "a", alone), b.lock(one, "b", shared)
		own := b.begin(one, "a", alone)
		other := b.begin(two, "b", alone)
		time.Sleep(time.Minute) // quiet
		synctest.Wait()
		cut := errors.New("cut")
		b.do(func() { b.pins[0].dead = cut })
		synctest.Wait()
		for _, p := range []Possession{first, second} {
			select {
			case <-p.Kept().Done():
			default:
				b.Fatal("not lost")
			}
			assert.ErrorIs(b, context.Cause(p.Kept()), cut, "cause")
			if err := p.Release(context.Background()); !errors.Is(err, driver.ErrNotHeld) || !errors.Is(err, cut) {
				b.Errorf("release: %v", err)
			}
		}
		p := b.has(own)
		assert.NoError(b, context.Cause(p.Kept()), "cause")
		b.unlock(p)
		b.unlock(b.has(other))
	})
}

func TestNothingIsLostThatIsNot(t *testing.T) {
	in(t, func(b *bench) {
		k := b.keeper()
		p := b.lock(k, "n", alone)
		for range 5 {
			time.Sleep(time.Minute)
			b.unlock(b.lock(k, "m", alone))
		}
		b.unlock(p)
		assert.Equal(b, len(b.pins), 1, "connections")
	})
}

func TestALockThatTheServerDeniesEndsTheConnection(t *testing.T) {
	in(t, func(b *bench) {
		k := b.keeper()
		p, q := b.lock(k, "a", alone), b.lock(k, "b", alone)
		b.do(func() { b.wrong = true })
		if err := p.Release(context.Background()); !errors.Is(err, driver.ErrNotHeld) || !errors.Is(err, errDenied) {
			b.Errorf("release: %v", err)
		}
		<-q.Kept().Done()
		assert.ErrorIs(b, context.Cause(q.Kept()), errDenied, "cause")
		b.do(func() { b.wrong = false })
		b.unlock(b.lock(k, "b", alone))
	})
}

func TestAServerThatDoesNotAnswerIsALoss(t *testing.T) {
	in(t, func(b *bench) {
		k := b.keeper()
		p := b.lock(k, "a", alone)
		b.do(func() { b.stall = true })
		c := b.begin(k, "b", alone)
		<-p.Kept().Done()
		if !strings.Contains(context.Cause(p.Kept()).Error(), "no answer within 15s") {
			b.Errorf("cause: %v", context.Cause(p.Kept()))
		}
		b.do(func() { b.stall = false })
		b.unlock(b.has(c))
	})
}

func TestARefusalIsSaidToEachAndIsNotForEver(t *testing.T) {
	in(t, func(b *bench) {
		k := b.keeper()
		b.refuse = driver.Fail(driver.ErrConfig, errors.New("a pooler"))
		for range 2 {
			if _, _, err := k.Acquire(context.Background(), "n", alone, true); !errors.Is(err, driver.ErrConfig) {
				b.Fatalf("%v", err)
			}
		}
		b.do(func() { b.refuse = nil })
		b.unlock(b.lock(k, "n", alone))
	})
}

func TestAWaiterOnAnotherServerIsRefused(t *testing.T) {
	in(t, func(b *bench) {
		k := b.keeper()
		p := b.lock(k, "n", alone)
		b.do(func() { b.name = "b" })
		if _, _, err := k.Acquire(context.Background(), "n", alone, true); !errors.Is(err, driver.ErrUnavailable) ||
			!errors.Is(err, errElsewhere) {
			b.Errorf("%v", err)
		}
		b.unlock(p)
	})
}

// Broken by a line of the log before the connection is closed and those who wait go on.
func TestALoggerThatBlocksDelaysNoLossAndNoClose(t *testing.T) {
	in(t, func(b *bench) {
		end := make(chan struct{})
		defer close(end)
		k := New[string](b.fake, testlog.Stuck(end), time.Minute)
		c := NewClient(k, true)
		l, err := c.Lock(context.Background(), "a")
		require.NoError(b, err)
		own := b.begin(k, "a", alone)
		time.Sleep(time.Second) // quiet
		b.do(func() { b.pins[0].dead = errors.New("cut") })
		synctest.Wait()
		assert.ErrorIs(b, context.Cause(l.Context()), contract.ErrLost, "cause")
		b.unlock(b.has(own))
		began := time.Now()
		if err := c.Close(context.Background()); err != nil || time.Since(began) > 2*time.Second {
			b.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
