package dbtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// slowVariable is how many times slower than a quiet machine with two cores this one is. The first
// process that measures it sets it, so that all processes of a test run agree.
const slowVariable = "DBLOCK_TEST_SLOW"

// What a quiet machine with two cores needs for the samples. Faster machines have the same limits.
const (
	usualWork    = 25 * time.Millisecond
	usualConnect = time.Second // PostgreSQL starts a process: 40 ms of a processor on some machines
	usualCommit  = 400 * time.Millisecond
)

// longestScale is the largest factor by which leases and faults grow. A slower machine has to do
// less at once.
const longestScale = 2.5

// Slow returns how many times slower than a quiet machine with two cores this one is, at least 1:
// DBLOCK_TEST_SLOW, or else the measure of a fixed piece of work. The command pace measures servers
// too.
func Slow() float64 { return slow() }

var slow = sync.OnceValue(func() float64 {
	if n, err := strconv.ParseFloat(os.Getenv(slowVariable), 64); err == nil {
		return max(n, 1)
	}
	n := work().Times()
	_ = os.Setenv(slowVariable, strconv.FormatFloat(n, 'f', 1, 64)) // of this process and its children
	return n
})

// Scale lengthens a duration that a test states for a quiet machine: a lease, a limit.
func Scale(d time.Duration) time.Duration {
	return time.Duration(float64(d) * min(Slow(), longestScale)).Round(time.Millisecond)
}

// AtOnce is how many of n things this machine can do at once.
func AtOnce(n int) int { return max(1, int(float64(n)/Slow()+0.5)) }

// Sample is how long a fixed piece of work takes here, and on a quiet machine.
type Sample struct {
	What        string
	Took, Usual time.Duration
}

func (s Sample) times() float64 { return float64(s.Took) / float64(s.Usual) }

func (s Sample) String() string { return fmt.Sprintf("%s %.1f", s.What, s.times()) }

// work returns the best of a few tries: a moment with other load says nothing about the next hour.
func work() Sample {
	const tries = 5
	best := compute()
	for range tries - 1 {
		if s := compute(); s.Took < best.Took {
			best = s
		}
	}
	return best
}

// compute computes on every processor, in as many parts whatever their number.
func compute() Sample {
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
	return Sample{"work", time.Since(began), usualWork}
}

// Pace measures what tests spend their time on: a piece of work, and on each kind of server
// connecting and committing. The slowest of the samples is the pace of this machine.
func Pace(ctx context.Context, kinds ...string) (slowest Sample, all []Sample, err error) {
	all = []Sample{work()}
	for _, kind := range kinds {
		if kind == KindSQLite {
			continue // work measures it already
		}
		s, err := find(kind)
		if err != nil {
			return Sample{}, nil, err
		}
		samples, err := s.pace(ctx)
		if err != nil {
			return Sample{}, nil, fmt.Errorf("measuring %s: %w", kind, err)
		}
		all = append(all, samples...)
	}
	slowest = all[0]
	for _, s := range all[1:] {
		if s.times() > slowest.times() {
			slowest = s
		}
	}
	return slowest, all, nil
}

// Times is how many times longer than on a quiet machine it took, at least 1.
func (s Sample) Times() float64 { return max(s.times(), 1) }

func (s *Server) pace(ctx context.Context) (samples []Sample, err error) {
	const connections, commits = 40, 100
	name := newName()
	if err := s.admin("CREATE DATABASE " + name); err != nil {
		return nil, err
	}
	defer func() {
		if dropped := s.drop(name); err == nil {
			err = dropped
		}
	}()
	dsn, err := withDatabase(s.Kind, s.DSN, name)
	if err != nil {
		return nil, err
	}
	db, err := open(s.Kind, dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE pace (n integer)"); err != nil {
		return nil, err
	}
	began := time.Now()
	for range commits {
		if _, err := db.ExecContext(ctx, "INSERT INTO pace VALUES (1)"); err != nil {
			return nil, err
		}
	}
	samples = append(samples, Sample{"commit on " + s.Kind, time.Since(began), usualCommit})

	best := Sample{"connect to " + s.Kind, time.Hour, usualConnect}
	for range 3 {
		began := time.Now()
		if err := connect(ctx, s.Kind, dsn, connections); err != nil {
			return nil, err
		}
		best.Took = min(best.Took, time.Since(began))
	}
	return append(samples, best), nil
}

// connect makes so many connections, four at a time.
func connect(ctx context.Context, kind, dsn string, connections int) (err error) {
	failed := make(chan error, 4)
	for range cap(failed) {
		go func() {
			for range connections / cap(failed) {
				one, err := open(kind, dsn)
				if err == nil {
					err = one.PingContext(ctx)
					_ = one.Close()
				}
				if err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range cap(failed) {
		if e := <-failed; e != nil {
			err = e
		}
	}
	return err
}
