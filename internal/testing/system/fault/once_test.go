//go:build unix

package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
)

// once calls the job as a ticker would: several times in a slot.
func (w *crew) once(ctx context.Context, random *rand.Rand, c *client) {
	name, asked := w.names[0], session.Boottime()
	run := func(ctx context.Context, l *held, _ time.Time) error {
		w.actor.report(event{What: evRan, Name: name, Token: l.Token()})
		return nil
	}
	_, err := jobs.New(c.Client).OncePer(ctx, name, w.slot, run)
	if w.actor.config.Bug == bugRunsTwice && err == nil {
		err = c.Do(ctx, name, func(ctx context.Context, l *held) error { return run(ctx, l, time.Time{}) })
	}
	w.actor.report(event{What: evAskedRun, From: asked, Name: name}.with(err))
	w.done.Add(1)
	w.mu.Lock()
	quiet := w.quiet
	w.mu.Unlock()
	select {
	case <-quiet:
	case <-time.After(time.Duration(random.Int64N(int64(w.slot)))):
	}
}

// bugRunsTwice is of callers that run the job whether or not it was run.
const bugRunsTwice = "runs a job in a slot that was run"

// onceRound: a slot is run once, by whichever process comes first, and none is left out in which
// somebody asked and was answered.
func onceRound(w *world) {
	const name, slot = "job", 500 * time.Millisecond
	var all, running []*process
	start := func() *process {
		p := w.actor(fmt.Sprintf("actor %d", len(all)), func(c *actorConfig) { c.Seed = w.random.Uint64() })
		p.await(p.send(command{Verb: "work", Name: modeOnce, Workers: 2, Names: []string{name}, For: slot}), evDone)
		all = append(all, p)
		return p
	}
	for range 4 {
		running = append(running, start())
	}
	var killed []span
	for end := session.Boottime() + w.length; session.Boottime() < end; {
		pass(time.Duration(w.random.Int64N(int64(8 * slot))))
		i := w.random.IntN(len(running))
		killed = append(killed, running[i].kill())
		running[i] = start()
	}
	for _, p := range running {
		p.await(p.send(command{Verb: "pause"}), evIdle)
		p.exit()
	}
	// By the machine's clock, as the events are: the database's, which counts slots, is ahead by so
	// much, and was read at some time between the two.
	before := session.Boottime()
	ahead := time.Duration(w.count("SELECT %s", w.now()))*time.Microsecond - before
	doubt := session.Boottime() - before + 2*time.Millisecond
	runs, told := w.runs(name), map[int64]int{}
	slots := func(from, to time.Duration) (int64, int64) {
		return int64((from + ahead - doubt) / slot), int64((to + ahead + doubt) / slot)
	}
	// slots in which somebody asked, and those of a question that was asked or answered in another
	within, across := map[int64]string{}, map[int64]bool{}
	for _, p := range all {
		for _, e := range p.all() {
			switch {
			case e.What == evRan:
				told[e.Token]++
			case e.What == evAskedRun:
				first, last := slots(e.From, e.At)
				if first == last && e.Err == "" {
					within[first] = p.label
				} else {
					for n := first; n <= last; n++ {
						across[n] = true
					}
				}
			}
			if e.Err != "" {
				w.tried("errors", 1)
			}
		}
	}
	for n, label := range within {
		if _, ran := runs[n]; ran || across[n] {
			continue
		}
		last := int64(0) // that was run before
		for other := range runs {
			if other < n {
				last = max(last, other)
			}
		}
		if !slices.ContainsFunc(killed, func(k span) bool { // it may have had the lock
			from, to := slots(k.from, k.to)
			return last <= to && from <= n
		}) && runs[last].ended {
			w.Errorf("slot %d was not run, in which %s asked", n, label)
		}
	}
	w.tried("slots", len(runs))
	for n, r := range runs {
		switch {
		case r.tries != 1:
			w.Errorf("slot %d was run %d times", n, r.tries)
		case told[r.token] > 1:
			w.Errorf("slot %d was run %d times under one lock", n, told[r.token])
		case !r.ended:
			w.tried("runs cut off", 1)
		case told[r.token] == 0:
			w.Errorf("slot %d is down as run, and nobody ran it", n)
		}
		delete(told, r.token)
	}
	for token, times := range told {
		w.Errorf("%d runs with token %d, which are in no slot", times, token)
	}
}

// slotRun is what the database has of a run.
type slotRun struct {
	token, tries int64
	ended        bool
}

// runs are a job's by slot.
func (w *world) runs(name string) map[int64]slotRun {
	w.Helper()
	rows, err := w.sql.QueryContext(w.Context(),
		fmt.Sprintf("SELECT slot, token, tries, ended_at IS NOT NULL FROM dblock_runs WHERE name = '%s'", name))
	require.NoError(w, err)
	defer rows.Close()
	all := map[int64]slotRun{}
	for rows.Next() {
		var slot int64
		var r slotRun
		require.NoError(w, rows.Scan(&slot, &r.token, &r.tries, &r.ended))
		all[slot] = r
	}
	require.NoError(w, rows.Err())
	return all
}
