package dbtest

import (
	"crypto/sha256"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// slowVariable is how many times slower than a quiet machine with two cores this one is. The first
// process that measures it sets it, so that all processes of a test run agree.
const slowVariable = "DBLOCK_TEST_SLOW"

// usualWork is what a quiet machine with two cores needs for the piece of work. Faster machines
// have the same limits.
const usualWork = 25 * time.Millisecond

// longestScale is the largest factor by which leases and faults grow. A slower machine has to do
// less at once.
const longestScale = 2.5

// Slow returns how many times slower than a quiet machine with two cores this one is, at least 1:
// DBLOCK_TEST_SLOW, or else the measure of a fixed piece of work.
func Slow() float64 { return slow() }

var slow = sync.OnceValue(func() float64 {
	if n, err := strconv.ParseFloat(os.Getenv(slowVariable), 64); err == nil {
		return max(n, 1)
	}
	n := max(float64(work())/float64(usualWork), 1)
	_ = os.Setenv(slowVariable, strconv.FormatFloat(n, 'f', 1, 64)) // of this process and its children
	return n
})

// Scale lengthens a duration that a test states for a quiet machine: a lease, a limit.
func Scale(d time.Duration) time.Duration {
	return time.Duration(float64(d) * min(Slow(), longestScale)).Round(time.Millisecond)
}

// AtOnce is how many of n things this machine can do at once.
func AtOnce(n int) int { return max(1, int(float64(n)/Slow()+0.5)) }

// work returns the best of a few tries: a moment with other load says nothing about the next hour.
func work() time.Duration {
	const tries = 5
	best := compute()
	for range tries - 1 {
		best = min(best, compute())
	}
	return best
}

// compute computes on every processor, in as many parts whatever their number.
func compute() time.Duration {
	const parts = 32
	began := time.Now()
	next := make(chan int, parts)
	for i := range parts {
		next <- i
	}
	close(next)
	var done sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		done.Go(func() {
			block := make([]byte, 1<<20)
			for range next {
				sum := sha256.Sum256(block)
				copy(block, sum[:])
			}
		})
	}
	done.Wait()
	return time.Since(began)
}

// Eventually waits for what must happen.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Scale(30 * time.Second)); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}
