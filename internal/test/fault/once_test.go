//go:build unix

package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

// once calls the job as a ticker would: several times in a slot.
func (w *crew) once(ctx context.Context, random *rand.Rand, c *client) {
	name, asked := w.names[0], session.Boottime()
	_, err := c.OncePer(ctx, name, w.slot, func(ctx context.Context, l *held, _ time.Time) error {
		w.actor.report(event{What: evRan, Name: name, Token: l.Token()})
		return nil
	})
	if err != nil {
		w.actor.report(event{What: evRefused, Name: name}.with(err))
	}
	if took := session.Boottime() - asked; took > w.slot/4 {
		w.actor.report(event{What: evSlow, Name: name, Longest: took})
	}
	w.done.Add(1)
	w.mu.Lock()
	quiet := w.quiet
	w.mu.Unlock()
	select {
	case <-quiet:
	case <-time.After(time.Duration(random.Int64N(int64(w.slot / 4)))):
	}
}

// A slot is run once, by whichever process comes first, and none is left out but where the one that
// had it was killed.
func TestAJobRunsOncePerSlot(t *testing.T) {
	slot, processes, run := 500*time.Millisecond, 3, each // beside what mostly waits
	length := lengthOf(t, "DBLOCK_TEST_ONCE", 0)
	kills := length > 0
	if kills {
		slot, processes, run = time.Second, 10, eachAlone
	} else {
		length = 3 * time.Second
	}
	run(t, func(w *world) {
		const name = "job"
		random, canary := rand.New(rand.NewPCG(seed(w), 3)), w.canary()
		var all, running []*process
		start := func() *process {
			p := w.actor(fmt.Sprintf("actor %d", len(all)), func(c *actorConfig) { c.Seed = random.Uint64() })
			p.await(p.send(command{Verb: "work", Name: modeOnce, Workers: 2, Names: []string{name}, For: slot}), evDone)
			all = append(all, p)
			return p
		}
		for range processes {
			running = append(running, start())
		}
		// By the machine's clock, as the events are: the database's, which counts slots, is ahead
		// by so much.
		ahead := time.Duration(w.count("SELECT %s", w.now()))*time.Microsecond - session.Boottime()
		from := session.Boottime()
		var killed []time.Duration
		for end := from + length; session.Boottime() < end; {
			if !kills {
				pass(end - session.Boottime())
				break
			}
			pass(time.Duration(random.Int64N(int64(8 * slot))))
			i := random.IntN(len(running))
			killed = append(killed, running[i].kill().to)
			running[i] = start()
		}
		to := session.Boottime()
		for _, p := range running {
			if e := p.await(p.send(command{Verb: "pause"}), evIdle); e.Rows == 0 {
				w.Errorf("%s never asked", p.label)
			}
			p.exit()
		}
		slow := func(at time.Duration) bool { // the sample runs beside what makes short slots pass unseen
			return !kills && slices.ContainsFunc(all, func(p *process) bool {
				return slices.ContainsFunc(p.all(), func(e event) bool {
					return e.What == evSlow && e.At-e.Longest < at+slot && at < e.At
				})
			})
		}
		excused := func(at time.Duration) bool { // the slot from then on
			for _, kill := range killed {
				if kill < at+slot && at < kill+promised+scheduling {
					return true
				}
			}
			return canary.choked(at+slot) || slow(at)
		}
		runs := w.runs(name)
		told := map[int64]int{}
		for _, p := range all {
			for _, e := range p.all() {
				switch {
				case e.What == evRan:
					told[e.Token]++
				case e.Err != "" && !canary.choked(e.At):
					w.Errorf("%s: %s", p.label, e.Err)
				}
			}
		}
		missing, unfinished := 0, 0
		for n := (from+ahead)/slot + 1; n < (to+ahead)/slot; n++ {
			at := n*slot - ahead
			if _, ran := runs[int64(n)]; !ran {
				missing++
				if !excused(at) {
					w.Errorf("slot %d, %v after the beginning, was not run", n, at-from)
				}
			}
		}
		for n, r := range runs {
			switch at := time.Duration(n)*slot - ahead; {
			case r.tries != 1:
				w.Errorf("slot %d was run %d times", n, r.tries)
			case told[r.token] > 1:
				w.Errorf("slot %d was run %d times under one lock", n, told[r.token])
			case !r.ended && !excused(at):
				w.Errorf("slot %d did not end, and nobody was killed", n)
			case !r.ended:
				unfinished++
			case told[r.token] == 0:
				w.Errorf("slot %d is down as run, and nobody ran it", n)
			}
			delete(told, r.token)
		}
		for token, times := range told {
			w.Errorf("%d runs with token %d, which are in no slot", times, token)
		}
		w.Logf("%d runs in %v, slots of %v, %d processes; %d were killed: %d runs cut off, %d slots left out", len(runs), length, slot, len(all), len(killed), unfinished, missing)
	})
}

// slotRun is what the database has of a run.
type slotRun struct {
	token, tries int64
	ended        bool
}

// runs are a job's by slot.
func (w *world) runs(name string) map[int64]slotRun {
	w.Helper()
	rows, err := w.sql.QueryContext(w.Context(), fmt.Sprintf("SELECT slot, token, tries, ended_at IS NOT NULL FROM dblock_runs WHERE name = '%s'", name))
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	all := map[int64]slotRun{}
	for rows.Next() {
		var slot int64
		var r slotRun
		if err := rows.Scan(&slot, &r.token, &r.tries, &r.ended); err != nil {
			w.Fatal(err)
		}
		all[slot] = r
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return all
}
