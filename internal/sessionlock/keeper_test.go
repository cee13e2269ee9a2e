package sessionlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestGoroutinesGetANameInTheOrderInWhichTheyAsked(t *testing.T) {
	in(t, func(b *bench) {
		k := b.keeper()
		p := b.lock(k, "n", alone)
		var calls []*call
		for range 20 {
			calls = append(calls, b.begin(k, "n", alone))
			require.Equal(b, b.queued("n"), 1, "waiters of one client")
		}
		for i, c := range calls {
			b.waits(calls[i:]...)
			b.unlock(p)
			p = b.has(c)
		}
		b.unlock(p)
		if len(b.pins) != 1 || b.most != 1 {
			b.Errorf("%d pinned connections, %d waiters", len(b.pins), b.most)
		}
	})
}

func TestClientsGetANameInTheOrderInWhichTheyQueued(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		p := b.lock(one, "n", alone)
		first, second := b.begin(two, "n", alone), b.begin(one, "n", alone)
		b.unlock(p)
		p = b.has(first)
		b.waits(second)
		third := b.begin(two, "n", alone)
		b.unlock(p)
		p = b.has(second)
		b.waits(third)
		b.unlock(p)
		b.unlock(b.has(third))
	})
}

func TestTryDoesNotPassTheQueue(t *testing.T) {
	in(t, func(b *bench) {
		one, two, three := b.keeper(), b.keeper(), b.keeper()
		p := b.lock(one, "n", shared)
		waiting := b.begin(two, "n", alone)
		if b.try(three, "n", shared) || b.try(one, "n", shared) || b.try(two, "n", shared) {
			b.Error("a share went past somebody who waits")
		}
		b.unlock(p)
		b.unlock(b.has(waiting))
		for _, k := range b.keepers {
			if !b.try(k, "n", alone) {
				b.Error("nobody has it, and nobody waits for it")
			}
		}
	})
}

// Broken by a Release that does not wait until the waiter has left.
func TestAFreeNameHasNoQueue(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		p := b.lock(one, "n", alone)
		waiting := b.begin(two, "n", alone)
		b.leaving = func() { time.Sleep(time.Second) } // of the bubble's time
		b.unlock(p)
		b.unlock(b.has(waiting))
		if !b.try(one, "n", alone) || !b.try(two, "n", alone) {
			b.Error("nobody has it, and nobody waits for it")
		}
	})
}

func TestSharesGoTogetherAndExcludeTheOneWhoWantsItAlone(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		p := b.lock(one, "n", alone)
		readers := []*call{b.begin(two, "n", shared), b.begin(two, "n", shared), b.begin(two, "n", shared)}
		b.waits(readers...)
		b.unlock(p)
		for _, c := range readers {
			b.has(c)
		}
		p = b.lock(two, "n", shared)
		writer := b.begin(two, "n", alone)
		b.unlock(p)
		for _, c := range readers {
			b.waits(writer)
			b.unlock(c.p)
		}
		b.unlock(b.has(writer))
	})
}

func TestTriesOfSharesAtTheSameTimeAllSucceed(t *testing.T) {
	in(t, func(b *bench) {
		k := b.keeper()
		b.do(func() { b.stall = true })
		var got [5]bool
		for i := range got {
			go func() {
				p, ok, err := k.Acquire(context.Background(), "n", shared, false)
				if got[i] = ok && err == nil; ok {
					b.unlock(p)
				}
			}()
		}
		synctest.Wait()
		b.do(func() { b.stall = false })
		synctest.Wait()
		for _, ok := range got {
			if !ok {
				b.Fatalf("%v", got)
			}
		}
	})
}

// Broken by taking the end of a context for another holder.
func TestAServerThatHasNotAnsweredHasNamedNobody(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		give := func(k *Keeper[string], name string) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _, err := k.Acquire(ctx, name, alone, true)
			return err
		}
		b.do(func() { b.stall = true })
		assert.ErrorIs(b, give(one, "n"), driver.ErrUnavailable, "nobody was seen")
		b.do(func() { b.stall = false })
		synctest.Wait()
		p := b.lock(two, "held", alone)
		for range 2 { // seen by a try, and by a wait
			if err := give(one, "held"); !errors.Is(err, context.DeadlineExceeded) ||
				errors.Is(err, driver.ErrUnavailable) {
				b.Errorf("%v: somebody was seen", err)
			}
		}
		if err := give(two, "held"); !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, driver.ErrUnavailable) {
			b.Errorf("%v: it has it itself", err)
		}
		b.unlock(p)
	})
}

func TestTheNextInheritsThePlaceOfOneWhoGivesUp(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		p := b.lock(one, "n", alone)
		first, heir := b.begin(two, "n", alone), b.begin(two, "n", alone)
		later := b.begin(one, "n", alone)
		first.cancel()
		b.waits(heir, later)
		if !first.returned() || !errors.Is(first.err, context.Canceled) {
			b.Fatalf("cancelled: %v", first.err)
		}
		b.unlock(p)
		p = b.has(heir)
		b.waits(later)
		b.unlock(p)
		b.unlock(b.has(later))
	})
}

func TestOneWhoGivesUpLeavesNothing(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		p := b.lock(one, "n", alone)
		for _, mode := range []bool{alone, shared} {
			c := b.begin(two, "n", mode)
			c.cancel()
			if !c.returned() || b.queued("n") != 0 {
				b.Fatalf("%d in the queue, %v", b.queued("n"), c.err)
			}
		}
		b.unlock(p)
		if !b.try(two, "n", alone) {
			b.Error("nobody has it")
		}
	})
}

func TestTheNextMayWantTheOtherMode(t *testing.T) {
	in(t, func(b *bench) {
		k := b.keeper()
		p, q := b.lock(k, "n", shared), b.lock(k, "n", shared)
		writer, reader := b.begin(k, "n", alone), b.begin(k, "n", shared)
		b.waits(reader)
		writer.cancel()
		b.unlock(b.has(reader))
		b.unlock(p)
		b.unlock(q)
	})
}

// Broken by leaving the queue because of the other mode.
func TestThePlaceIsKeptForTheOtherMode(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		p := b.lock(one, "n", shared)
		ahead := b.begin(two, "n", alone)
		reader, writer := b.begin(one, "n", shared), b.begin(one, "n", alone)
		behind := b.begin(b.keeper(), "n", alone)
		b.do(func() {
			b.gap = func() { // the reader's turn has come, and it does not want it any more
				b.mu.Unlock()
				defer b.mu.Lock()
				reader.cancel()
				<-reader.done
			}
		})
		ahead.cancel()
		b.waits(writer, behind)
		b.unlock(p)
		p = b.has(writer)
		b.waits(behind)
		b.unlock(p)
		b.unlock(b.has(behind))
	})
}

func TestWhatWasTakenForOneWhoHasGoneIsGivenBack(t *testing.T) {
	in(t, func(b *bench) {
		k := b.keeper()
		b.unlock(b.lock(k, "n", alone))
		b.do(func() { b.stall = true })
		c := b.begin(k, "n", alone)
		c.cancel()
		if !c.returned() || !errors.Is(c.err, context.Canceled) {
			b.Fatalf("cancelled: %v", c.err)
		}
		b.do(func() { b.stall = false })
		synctest.Wait()
		if !b.try(b.keeper(), "n", alone) {
			b.Error("it was not given back")
		}
	})
}

// Broken by giving up the place when the lock turns out to be taken.
func TestAStrangerInTheGapCostsATurnAndNotThePlace(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		p := b.lock(one, "n", alone)
		first := b.begin(two, "n", alone)
		later := b.begin(one, "n", alone)
		b.do(func() { b.gap = func() { b.key("n").take("stranger", alone) } })
		b.unlock(p)
		b.waits(first, later)
		b.do(func() { delete(b.key("n").holders, "stranger") })
		p = b.has(first)
		b.waits(later)
		b.unlock(p)
		b.unlock(b.has(later))
	})
}

func TestNamesWithTheSameKeyExcludeEachOther(t *testing.T) {
	in(t, func(b *bench) {
		k := b.keeper()
		p := b.lock(k, "name/1", alone)
		if b.try(k, "name/2", alone) {
			b.Error("the session has both")
		}
		b.unlock(p)
	})
}

func TestMoreNamesThanWaiters(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		var held []Possession
		var calls []*call
		for i := range MaxWaiters + 5 {
			held = append(held, b.lock(one, fmt.Sprint(i), alone))
			calls = append(calls, b.begin(two, fmt.Sprint(i), alone))
		}
		b.waits(calls...)
		for i := len(held) - 1; i >= 0; i-- { // the last ones have no waiter
			b.unlock(held[i])
			<-calls[i].done
			b.unlock(b.has(calls[i]))
		}
		assert.Equal(b, b.most, MaxWaiters, "waiters at a time")
		time.Sleep(linger)
		synctest.Wait()
		b.do(func() { assert.Equal(b, b.waiters, 0, "idle waiters stay") })
	})
}

func TestManyAtATimeTravelTogether(t *testing.T) {
	in(t, func(b *bench) {
		k := b.keeper()
		b.unlock(b.lock(k, "n", alone))
		b.do(func() { b.stall = true })
		var calls []*call
		for i := range 100 {
			calls = append(calls, b.begin(k, fmt.Sprint(i), alone))
		}
		b.do(func() { b.stall = false })
		for _, c := range calls {
			b.has(c)
		}
		if runs := b.pins[0].runs; runs > 4 {
			b.Errorf("%d round trips", runs)
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	in(t, func(b *bench) {
		one, two := b.keeper(), b.keeper()
		p := b.lock(one, "n", alone)
		own, other := b.begin(one, "n", alone), b.begin(two, "n", alone)
		for range 2 {
			require.NoError(b, one.Close(context.Background()))
		}
		<-p.Kept().Done()
		if !own.returned() || !errors.Is(own.err, driver.ErrUnavailable) || !errors.Is(context.Cause(p.Kept()),
			errClosed) {
			b.Errorf("%v, %v", own.err, context.Cause(p.Kept()))
		}
		if _, _, err := one.Acquire(context.Background(), "n", alone, true); !errors.Is(err, errClosed) {
			b.Errorf("afterwards: %v", err)
		}
		b.unlock(b.has(other))
	})
}

// Everything at once: each call that is not called off gets its turn.
func TestNobodyIsForgotten(t *testing.T) {
	in(t, func(b *bench) {
		keepers := []*Keeper[string]{b.keeper(), b.keeper(), b.keeper()}
		var all sync.WaitGroup
		var got atomic.Int64
		for range 60 {
			all.Go(func() {
				for range 30 {
					k, name, share := keepers[rand.N(len(keepers))], fmt.Sprint(rand.N(3)), rand.N(2) == 0
					ctx, cancel := context.WithCancel(context.Background())
					if rand.N(3) == 0 {
						ctx, cancel = context.WithTimeout(ctx, rand.N(20*time.Millisecond))
					}
					p, ok, err := k.Acquire(ctx, name, share, rand.N(4) > 0)
					if err != nil && ctx.Err() == nil && !errors.Is(err, driver.ErrUnavailable) {
						t.Error(err)
					}
					cancel()
					if ok {
						got.Add(1)
						time.Sleep(rand.N(time.Millisecond))
						if err := p.Release(context.Background()); err != nil && !errors.Is(err, driver.ErrNotHeld) {
							t.Error(err)
						}
					}
				}
			})
		}
		for range 20 {
			time.Sleep(rand.N(100 * time.Millisecond))
			b.do(func() {
				if len(b.pins) > 0 {
					b.pins[len(b.pins)-1].dead = errors.New("cut")
				}
			})
		}
		all.Wait()
		synctest.Wait()
		for _, k := range keepers {
			for i := range 3 {
				b.unlock(b.lock(k, fmt.Sprint(i), alone))
			}
			k.mu.Lock()
			if len(k.lines) > 0 {
				t.Errorf("%d lines are left", len(k.lines))
			}
			k.mu.Unlock()
		}
		if got.Load() < 300 {
			t.Errorf("only %d were granted", got.Load())
		}
	})
}
