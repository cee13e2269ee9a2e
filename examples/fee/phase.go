package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// phase is one of the experiments, with servers of its own.
type phase struct {
	options
	title      string
	locked     bool
	undetected bool // the servers do not see each other's end
}

// tally has the results of one server.
type tally struct {
	number, pid  int
	fees, grants int
	waits        []time.Duration // for the lock
	token        int64           // the last
	killed       bool
}

// result is the result of a phase.
type result struct {
	phase
	tallies []tally
	fees    int     // taken by all servers together
	final   account // as the database has it
	took    time.Duration
}

func (r result) lost() int { return r.fees - r.final.deductions }

// right returns the account that as many fees must leave.
func (r result) right() account { return replay(r.fees) }

// exact reports whether nothing was lost, to the cent.
func (r result) exact() bool { return r.final == r.right() }

// phaseRun is a running phase.
type phaseRun struct {
	phase
	db        store
	bars      *bars
	processes []*process
	tallies   []tally
	ready     int
	scene     scene
	began     time.Time
}

// patience is the time without events, beyond the TTL, after which the program reports a failure.
const patience = 30 * time.Second

// runPhase starts the servers, lets them begin together, and counts their reports until the last
// has ended.
func runPhase(ctx context.Context, p phase, db store, accounts accounts) (result, error) {
	if !p.locked {
		p.accident = none
	}
	if err := accounts.reset(ctx); err != nil {
		return result{}, err
	}
	r := &phaseRun{phase: p, db: db, tallies: make([]tally, p.servers)}
	r.bars = newBars(p)
	err := r.run(ctx)
	took := time.Since(r.began)
	r.bars.stop()
	if err != nil {
		return result{}, fmt.Errorf("%s: %w", p.title, err)
	}
	final, err := accounts.read(ctx)
	if err != nil {
		return result{}, err
	}
	done := result{phase: p, tallies: r.tallies, final: final, took: took}
	for _, t := range r.tallies {
		done.fees += t.fees
	}
	if final != replay(final.deductions) {
		return done, fmt.Errorf("%s: the balance is %s after %d fees; no server writes that", p.title,
			money(final.balance), final.deductions)
	}
	return done, nil
}

func (r *phaseRun) run(ctx context.Context) (err error) {
	events := make(chan event)
	for i := range r.servers {
		j := job{Source: r.db.Source, Locked: r.locked, Workers: r.workers, Rounds: r.rounds, TTL: r.ttl,
			Undetected: r.undetected}
		if r.accident != none {
			j.HalfTime = waitForSignal
			if i == 0 {
				j.HalfTime = stayInside
			}
		}
		p, startErr := startProcess(i+1, j, r.verbose, events)
		if startErr != nil {
			err = startErr
			break
		}
		r.processes = append(r.processes, p)
		r.tallies[i] = tally{number: p.number, pid: p.cmd.Process.Pid}
	}
	r.began = time.Now()
	stall := time.NewTimer(r.ttl + patience)
	defer stall.Stop()
	var kill <-chan time.Time // set when the servers were asked to go
	giveUp := func(why error) {
		err = errors.Join(err, why)
		if kill == nil {
			kill = time.After(endTimeout)
			for _, p := range r.processes {
				_ = resume(p.cmd.Process) // a stopped server cannot end
				p.end()
			}
		}
	}
	if err != nil {
		giveUp(nil)
	}
	interrupted := ctx.Done()
	for running := len(r.processes); running > 0; {
		select {
		case e := <-events:
			stall.Reset(r.ttl + patience)
			if e.Kind == hasEnded {
				running--
			}
			if eventErr := r.handle(ctx, e); eventErr != nil && kill == nil {
				giveUp(eventErr)
			}
		case <-interrupted:
			interrupted = nil
			giveUp(context.Cause(ctx))
		case <-stall.C:
			giveUp(fmt.Errorf("nothing happened for %v", r.ttl+patience))
		case <-kill:
			for _, p := range r.processes {
				_ = p.kill()
			}
		}
	}
	return err
}

// handle counts one report.
func (r *phaseRun) handle(ctx context.Context, e event) error {
	t := &r.tallies[e.from.number-1]
	switch e.Kind {
	case isReady:
		if r.ready++; r.ready < r.servers {
			return nil
		}
		r.began = time.Now()
		for _, p := range r.processes {
			p.signal()
		}
		return nil
	case feeTaken:
		t.fees++
		r.bars.step(e.from.number)
	case hasFailed:
		return fmt.Errorf("server %d: %s\n%s", e.from.number, e.Text, e.from.log.String())
	case hasEnded:
		if e.from == r.scene.victim && r.accident == crashed {
			t.killed = true
			r.bars.fail(e.from.number)
			return nil
		}
		if e.Text == "" && t.fees != r.rounds {
			e.Text = fmt.Sprintf("after %d of %d rounds", t.fees, r.rounds)
		}
		if e.Text != "" {
			return fmt.Errorf("server %d ended: %s\n%s", e.from.number, e.Text, e.from.log.String())
		}
		return nil
	}
	if e.Token != 0 && e.Kind != isWoken {
		t.grants++
		t.token = e.Token
		t.waits = append(t.waits, e.Wait)
	}
	return r.watch(ctx, e)
}

// wait returns the pth percentile of the server's waits for the lock; 1 to 100.
func (t tally) wait(p int) time.Duration {
	if len(t.waits) == 0 {
		return 0
	}
	slices.Sort(t.waits)
	return t.waits[(len(t.waits)*p+99)/100-1]
}
