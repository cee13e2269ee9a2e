package coalesce

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// server answers each request in its own words, after some time.
type server struct {
	took time.Duration
	fail error

	mu      sync.Mutex
	batches [][]string
	now     int // batches under way
	most    int
}

func (s *server) run(requests []string) ([]string, error) {
	s.mu.Lock()
	s.batches = append(s.batches, requests)
	s.now++
	s.most = max(s.most, s.now)
	took, fail := s.took, s.fail
	s.mu.Unlock()
	time.Sleep(took)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	if fail != nil {
		return nil, fail
	}
	answers := make([]string, len(requests))
	for i, r := range requests {
		answers[i] = strings.ToUpper(r)
	}
	return answers, nil
}

// sent is what was sent, in the order of time.
func (s *server) sent() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.batches)
}

// slotsTaken is called when nothing goes on.
func (c *Coalescer[Q, A]) slotsTaken() (taken int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lanes {
		taken += l.taken
	}
	return taken + len(c.lanes)
}

func (s *server) coalescer(most int) *Coalescer[string, string] {
	return New(Config[string, string]{
		Send: s.run, Most: most, Key: func(r string) string { return r[:1] }, Go: func(f func()) { go f() },
	})
}

// busy takes the slots that are free, until done.
func busy[Q, A any](c *Coalescer[Q, A]) (done func()) {
	var all []func()
	for {
		one, alone := c.Alone(*new(Q))
		if !alone {
			return func() {
				for _, one := range all {
					one()
				}
			}
		}
		all = append(all, one)
	}
}

func TestOneRequestGoesAloneAndManyGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: 10 * time.Millisecond}
		c := s.coalescer(100)
		done := busy(c)
		if _, alone := c.Alone(""); alone {
			t.Fatal("more statements than slots")
		}
		for _, r := range []string{"a", "b", "c"} {
			go func() {
				if answer, err := c.Do(t.Context(), r); err != nil || answer != strings.ToUpper(r) {
					t.Errorf("%s: %q, %v", r, answer, err)
				}
			}()
			synctest.Wait()
		}
		if len(s.sent()) != 0 {
			t.Errorf("sent while every slot was taken: %v", s.sent())
		}
		done()
		synctest.Wait()
		time.Sleep(time.Second)
		if len(s.sent()) != 1 || !slices.Equal(s.sent()[0], []string{"a", "b", "c"}) {
			t.Errorf("%v, want one batch in the order of the calls", s.sent())
		}
		assert.Equal(t, c.slotsTaken(), 0, "slots are taken")
	})
}

func TestTwoRequestsWithOneKeyNeverShareABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: time.Millisecond}
		c := s.coalescer(3)
		keep, _ := c.Alone("") // so that one batch follows the other
		defer keep()
		time.AfterFunc(slow/2, busy(c))
		for _, r := range []string{"a1", "b1", "a2", "c1", "d1", "a3"} {
			go func() { _, _ = c.Do(t.Context(), r) }()
			synctest.Wait()
		}
		time.Sleep(slow - time.Millisecond)
		synctest.Wait()
		assert.Equal(t, fmt.Sprint(s.sent()), "[[a1 b1 c1] [a2 d1] [a3]]")
	})
}

func TestNoMoreStatementsThanSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: 5 * time.Millisecond}
		c := New(Config[string, string]{Send: s.run, Most: 10, Go: func(f func()) { go f() }})
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() { assert.NoError(t, assert.ErrOf(c.Do(t.Context(), fmt.Sprint(i)))) })
		}
		all.Wait()
		if s.most > slots || len(s.sent()) > 102 {
			t.Errorf("%d statements at a time, %d batches", s.most, len(s.sent()))
		}
	})
}

// The server does not answer two statements. The others must not wait for them.
func TestASlowStatementGivesUpItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := s.coalescer(10)
		done := busy(c)
		began := time.Now()
		if _, err := c.Do(t.Context(), "a"); err != nil || time.Since(began) != slow {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		done() // gives nothing up twice
		synctest.Wait()
		assert.Equal(t, c.slotsTaken(), 0, "slots are taken")
	})
}

// The batch goes on for the others, and the one who left hears of its end.
func TestACallerThatLeavesEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: time.Second}
		c := s.coalescer(10)
		done := busy(c)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		var left [2]*Left
		for i, r := range []string{"a", "b"} {
			go func() {
				_, err := c.Do(ctx, r)
				if !errors.As(err, &left[i]) || !errors.Is(err, gone) {
					t.Error(err)
				}
			}()
			synctest.Wait()
			if r == "a" {
				done() // the first is under way
				done = busy(c)
			}
		}
		stays := make(chan error)
		go func() { _, err := c.Do(t.Context(), "c"); stays <- err }()
		synctest.Wait()
		cancel(gone)
		synctest.Wait()
		if left[0].Answered == nil || left[1].Answered != nil {
			t.Fatalf("%+v, %+v: want the first sent, and the second withdrawn", left[0], left[1])
		}
		select {
		case <-left[0].Answered:
			t.Error("answered before the server did")
		default:
		}
		done()
		assert.NoError(t, <-stays)
		<-left[0].Answered
		assert.Equal(t, fmt.Sprint(s.sent()), "[[a] [c]]")
	})
}

// lanes are the lanes of requests by their first letter, each with one slot.
func (s *server) lanes() *Coalescer[string, string] {
	return New(Config[string, string]{
		Send: s.run, Most: 3, Slots: 1, Lane: func(r string) string { return r[:1] }, Go: func(f func()) { go f() },
	})
}

// Broken by a request that is sent before one that came earlier, or while that is in flight.
func TestRequestsOfALaneAreSentInTheOrderInWhichTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: slow / 10}
		c := s.lanes()
		for _, r := range []string{"a", "b", "a1", "a2", "a3", "a4", "b1", "a5"} {
			if done, alone := c.Alone(r); alone {
				go func() { _, _ = s.run([]string{r}); done() }()
			} else {
				go func() { _, _ = c.Do(t.Context(), r) }()
			}
			synctest.Wait()
			if !c.Busy(r) {
				t.Errorf("%s is not under way", r)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		sent := map[string][][]string{}
		for _, batch := range s.sent() {
			sent[batch[0][:1]] = append(sent[batch[0][:1]], batch)
		}
		assert.Equal(t, fmt.Sprint(sent), "map[a:[[a] [a1 a2 a3] [a4 a5]] b:[[b] [b1]]]")
		assert.Equal(t, c.slotsTaken(), 0, "slots are taken")
		if c.Busy("a") {
			t.Error("a lane without requests is busy")
		}
	})
}

func TestAnErrorIsEverybodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{fail: errors.New("no answer")}
		c := s.coalescer(10)
		done := busy(c)
		for _, r := range []string{"a", "b"} {
			go func() {
				if answer, err := c.Do(t.Context(), r); !errors.Is(err, s.fail) || answer != "" {
					t.Errorf("%q, %v", answer, err)
				}
			}()
		}
		synctest.Wait()
		done()
		synctest.Wait()
	})
}

// Broken by the error of a batch that all its requests get.
func TestARequestThatIsRefusedTakesNoOtherAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused, away := errors.New("refused"), errors.New("away")
		var sizes []int
		c := New(Config[int, int]{
			Most: 100, Go: func(f func()) { go f() }, Refused: func(err error) bool { return err == refused },
			Send: func(requests []int) ([]int, error) {
				sizes = append(sizes, len(requests))
				switch {
				case slices.Contains(requests, 17):
					return nil, refused
				case slices.Equal(requests, []int{100}):
					return nil, away
				}
				return requests, nil
			},
		})
		send := func(from, to int) {
			done := busy(c)
			for i := from; i < to; i++ {
				go func() {
					answer, err := c.Do(t.Context(), i)
					switch want := map[int]error{17: refused, 100: away}[i]; {
					case err != want:
						t.Errorf("%d: %v, want %v", i, err, want)
					case err == nil && answer != i:
						t.Errorf("%d was answered with %d", i, answer)
					}
				}()
				synctest.Wait()
			}
			done()
			synctest.Wait()
		}
		send(0, 64)
		if len(sizes) != 13 { // two in each of six halvings, after the first
			t.Errorf("64 requests went in %d statements: %v", len(sizes), sizes)
		}
		send(100, 101)
		assert.Equal(t, c.slotsTaken(), 0, "slots are taken")
	})
}
