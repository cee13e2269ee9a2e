package dblockprom

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
)

// Lister is the source of Inspect: inspect.New(client), or a wrapper of it.
type Lister interface {
	List(ctx context.Context, f inspect.Filter) iter.Seq2[inspect.Info, error]
}

// Inspection bounds the reads of Inspect. The zero value has the defaults.
type Inspection struct {
	// Names bounds the names with a queue, and the other names, that are read. Default: 1,000.
	Names   int
	Timeout time.Duration // for all reads of one scrape. Default: 2 s
	Every   time.Duration // an earlier scrape gets the last result. Default: 10 s
	Failed  func(error)   // is called with the error of a failed read. Default: nothing is called
}

// Inspect adds the metrics of the queues, which a scrape reads from the database, for all clients,
// not only for this one. One of many processes is enough. Times are compared with this machine's
// clock: dblock_oldest_waiter_seconds is wrong by the difference from the database's clock. A
// second call replaces the first. Inspect returns ErrInvalidOption if a bound is negative, or of is
// nil. Default: nothing is read.
func (c *Collector) Inspect(of Lister, bounds Inspection) error {
	if of == nil {
		return fmt.Errorf("dblockprom: %w: Inspect(nil): want a client", dblock.ErrInvalidOption)
	}
	if bounds.Names < 0 || bounds.Timeout < 0 || bounds.Every < 0 {
		return fmt.Errorf("dblockprom: %w: %d names, within %v, every %v: want nothing below 0",
			dblock.ErrInvalidOption, bounds.Names, bounds.Timeout, bounds.Every)
	}
	i := &inspection{of: of, names: 1000, timeout: 2 * time.Second, every: 10 * time.Second, failed: bounds.Failed}
	if bounds.Names > 0 {
		i.names = bounds.Names
	}
	if bounds.Timeout > 0 {
		i.timeout = bounds.Timeout
	}
	if bounds.Every > 0 {
		i.every = bounds.Every
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inspection = i
	return nil
}

// inspection reads the names of a database, one scrape at a time.
type inspection struct {
	of             Lister
	names          int
	timeout, every time.Duration
	failed         func(error) // nil: nothing is called

	mu   sync.Mutex // guards the fields below
	read time.Time  // the time of the last read
	last queues
}

// queues are the results of a read.
type queues struct {
	err             error
	took            time.Duration
	truncated       bool
	held, contended int
	longest         int
	oldest          time.Time // the time since which the oldest waiter waits; zero: no waiter
}

// latest returns the last result, or reads now.
func (i *inspection) latest() queues {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.read.IsZero() || time.Since(i.read) >= i.every {
		began := time.Now()
		i.last = i.look()
		i.last.took = time.Since(began)
		i.read = time.Now()
		if i.last.err != nil && i.failed != nil {
			i.failed(i.last.err)
		}
	}
	return i.last
}

// look reads names with a queue separately, so that they are not lost among many held names. List
// reads the first places of a queue: candidates of an election behind those count as waiters.
func (i *inspection) look() (q queues) {
	ctx, cancel := context.WithTimeout(context.Background(), i.timeout)
	defer cancel()
	cut, err := i.each(ctx, inspect.Filter{Contended: true}, func(info inspect.Info) {
		q.contended++
		queued := info.Queued
		for _, w := range info.Waiters {
			switch {
			case w.Candidate:
				queued--
			case q.oldest.IsZero() || w.Since.Before(q.oldest):
				q.oldest = w.Since
			}
		}
		q.longest = max(q.longest, queued)
	})
	if err != nil {
		return queues{err: err}
	}
	more, err := i.each(ctx, inspect.Filter{}, func(info inspect.Info) {
		if len(info.Holders) > 0 {
			q.held++
		}
	})
	if err != nil {
		return queues{err: err}
	}
	q.truncated = cut || more
	return q
}

// each calls f for at most as many names as the inspection may read, and reports whether there were
// more.
func (i *inspection) each(ctx context.Context, f inspect.Filter, see func(info inspect.Info)) (more bool, err error) {
	seen := 0
	for info, err := range i.of.List(ctx, f) {
		if err != nil {
			return false, err
		}
		if seen == i.names {
			return true, nil
		}
		seen++
		see(info)
	}
	return false, nil
}

// queueDescs are the metrics of Inspect.
type queueDescs struct {
	success, truncated, took, held, contended, longest, oldest *prometheus.Desc
}

func newQueueDescs(labels prometheus.Labels) queueDescs {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, labels) }
	return queueDescs{
		success:   desc("dblock_inspection_success", "Whether the names could be read from the database."),
		truncated: desc("dblock_inspection_truncated", "Whether there were more names than are read."),
		took:      desc("dblock_inspection_duration_seconds", "How long it took to read the names."),
		held:      desc("dblock_names_held", "How many names are held, by any client."),
		contended: desc("dblock_names_contended", "How many names are waited for, by any client."),
		longest:   desc("dblock_longest_queue_waiters", "How many wait for the name with the longest queue."),
		oldest:    desc("dblock_oldest_waiter_seconds", "For how long the oldest waiter has waited."),
	}
}

func (d queueDescs) describe(out chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{d.success, d.truncated, d.took, d.held, d.contended, d.longest, d.oldest} {
		out <- one
	}
}

func (d queueDescs) collect(out chan<- prometheus.Metric, q queues) {
	out <- gauge(d.took, q.took.Seconds())
	out <- gauge(d.success, oneIf(q.err == nil))
	if q.err != nil {
		return
	}
	age := 0.0
	if !q.oldest.IsZero() {
		age = max(0, time.Since(q.oldest).Seconds())
	}
	out <- gauge(d.truncated, oneIf(q.truncated))
	out <- gauge(d.held, float64(q.held))
	out <- gauge(d.contended, float64(q.contended))
	out <- gauge(d.longest, float64(q.longest))
	out <- gauge(d.oldest, age)
}
