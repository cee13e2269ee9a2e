package dblockweb_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
)

func TestSessionsShowWhatEachHoldsAndWaitsFor(t *testing.T) {
	w := newWorld(t)
	w.contains(w.get("sessions"), "There is no such session")
	w.lock("n")
	w.waits("n", 1)
	w.contains(w.get("sessions"), "there", "orders", `<td class="num">1</td><td class="num">1</td>`)
	w.contains(w.get("sessions?host=elsewhere&dead=1"), "There is no such session", "checked")
}

// schedule is a Source of one job.
type schedule struct {
	named
	runs []jobs.Run
}

func (s schedule) Jobs(context.Context) iter.Seq2[jobs.Run, error] {
	return func(yield func(jobs.Run, error) bool) { yield(s.runs[0], nil) }
}

func (s schedule) Runs(context.Context, string) iter.Seq2[jobs.Run, error] {
	return func(yield func(jobs.Run, error) bool) {
		for _, r := range s.runs {
			if !yield(r, nil) {
				return
			}
		}
	}
}

var cells = regexp.MustCompile(`<g class="(\w+)"><title>`)

// strip is what the page of a job draws, the latest last.
func strip(t *testing.T, runs []jobs.Run) (all []string) {
	t.Helper()
	w := &world{T: t, server: serve(t, handlerOf(schedule{runs: runs}))}
	w.contains(w.get("jobs"), `href="job?name=j"`)
	for _, m := range cells.FindAllStringSubmatch(w.get("job?name=j"), -1) {
		all = append(all, m[1])
	}
	return all
}

// recorded is a Source of events.
type recorded struct {
	named
	events []inspect.Event
}

func (r recorded) Events(context.Context, inspect.EventFilter) iter.Seq2[inspect.Event, error] {
	return func(yield func(inspect.Event, error) bool) {
		for _, e := range r.events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Broken by a column that no row fills, and by one that is left out although a row fills it.
func TestColumnsOfEventsThatNoRowFillsAreNotShown(t *testing.T) {
	all := map[string]func(e *inspect.Event){
		"Token": func(e *inspect.Event) { e.Token = 42 }, "Client": func(e *inspect.Event) { e.Host = "there" },
		"Reason": func(e *inspect.Event) { e.Metadata = map[string]string{"k": "v"} },
	}
	for filled, fill := range all {
		list := []inspect.Event{{ID: 2, Name: "n", Kind: "asked"}, {ID: 1, Name: "n", Kind: "asked"}}
		fill(&list[1])
		w := &world{T: t, server: serve(t, handlerOf(recorded{events: list}))}
		page := w.get("events")
		for column := range all {
			if shown := strings.Contains(page, ">"+column+"</th>"); shown != (column == filled) {
				t.Errorf("%s is filled, and %s is shown: %v", filled, column, shown)
			}
		}
	}
}

// slot is a run of a slot that is so many before the present one.
func slot(every time.Duration, ago int64, err string) jobs.Run {
	number := time.Now().UnixMicro()/every.Microseconds() - ago
	begins := time.UnixMicro(number * every.Microseconds())
	return jobs.Run{Name: "j", Slot: number, SlotBegins: begins, SlotEnds: begins.Add(every),
		Began: begins.Add(time.Second), Ended: begins.Add(2 * time.Second), Err: err}
}

// The slots are days: the test must not run into the next one.
const day = 24 * time.Hour

func TestAStripShowsWhatBecameOfEachSlot(t *testing.T) {
	got := strip(t, []jobs.Run{slot(day, 1, ""), slot(day, 3, "the disk is full"), slot(day, 6, "")})
	want := append(slices.Repeat([]string{"unknown"}, 43), "ran", "missed", "missed", "failed", "missed", "ran", "open")
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestASlotIsNotMissedThatRanUnderAnotherInterval(t *testing.T) {
	within := slot(time.Hour, 0, "")
	within.Slot -= 24 * 3
	within.SlotBegins, within.SlotEnds = within.SlotBegins.Add(-3*day), within.SlotEnds.Add(-3*day)
	within.Began = within.Began.Add(-3 * day)
	within.Ended = within.Began.Add(time.Second)
	got := strip(t, []jobs.Run{slot(day, 0, ""), slot(day, 2, ""), within})
	if want := []string{"ran", "ran", "missed", "ran"}; len(got) != 50 || !slices.Equal(got[46:], want) {
		t.Errorf("got %v", got)
	}
}

func TestASlotInWhichTheRunBeforeWentOnSaysSo(t *testing.T) {
	long := slot(day, 3, "")
	long.Ended = long.SlotEnds.Add(day + time.Hour)
	w := &world{T: t, server: serve(t, handlerOf(schedule{runs: []jobs.Run{slot(day, 0, ""), slot(day, 1, ""), long}}))}
	w.contains(w.get("job?name=j"), "no run began: the one before went on")
}

func TestOfPlannedTimesOnlyRunsAreShown(t *testing.T) {
	var runs []jobs.Run
	for ago := range int64(3) {
		at := time.Now().Add(-time.Duration(ago*ago) * day).Truncate(time.Microsecond)
		runs = append(runs, jobs.Run{
			Name: "j", Slot: at.UnixMicro(), SlotBegins: at, SlotEnds: at, Began: at, Ended: at,
		})
	}
	runs[1].Err = "no"
	runs[0].Ended = time.Time{}
	if got := strip(t, runs); !slices.Equal(got, []string{"ran", "failed", "running"}) {
		t.Errorf("got %v", got)
	}
}

// The interval of a job is not stored: it follows from the number and the end of a slot.
func TestTheIntervalOfAJobIsThatOfItsCaller(t *testing.T) {
	w := newWorld(t)
	for _, every := range []time.Duration{100 * time.Millisecond, 7 * time.Second, 90 * time.Minute, day} {
		name := "every " + every.String()
		ran, err := jobs.New(w.Client).OncePer(t.Context(), name, every, func(context.Context, *dblock.Lock,
			time.Time) error {
			return errors.New("the disk is full")
		})
		if !ran {
			t.Fatal(err)
		}
		text := strings.TrimSuffix(strings.TrimSuffix(every.String(), "0s"), "h0m")
		if strings.HasSuffix(every.String(), "h0m0s") {
			text += "h"
		}
		w.contains(w.get("job?name="+strings.ReplaceAll(name, " ", "+")), "One run every "+text+".", "the disk is full",
			"1 failed")
	}
	ran, err := jobs.New(w.Client).OnceAt(t.Context(), "planned", time.Now(), func(context.Context, *dblock.Lock,
		time.Time) error {
		return nil
	})
	if !ran || err != nil {
		t.Fatal(ran, err)
	}
	w.contains(w.get("job?name=planned"), "Runs at planned times")
	w.contains(w.get("jobs"), "planned times", "1h30m<")
	w.contains(w.get("lock?name=once%2fplanned"), `href="job?name=planned"`)
}

func TestJobsLeadFromPageToPage(t *testing.T) {
	w := newWorld(t)
	for i := range 25 {
		_, err := jobs.New(w.Client).OncePer(t.Context(), fmt.Sprintf("j%02d", i), day,
			func(context.Context, *dblock.Lock, time.Time) error { return nil })
		require.NoError(t, err)
	}
	first := w.get("jobs")
	w.contains(first, "j19")
	w.lacks(first, "j20")
	second := w.get(w.linkTo(first, "jobs?after="))
	w.contains(second, "j20", "j24")
	w.lacks(second, "j19<", "jobs?after=")
}

func TestElectionsShowWhoLeads(t *testing.T) {
	w := newWorld(t)
	w.contains(w.get("elections"), "No election has been held")
	ctx, cancel := context.WithCancel(t.Context())
	leads, done := make(chan int64), make(chan error, 2)
	campaign := func(f *dblocktest.Fake[tx]) {
		done <- election.New(f.Client).Campaign(ctx, "indexer", func(ctx context.Context, term *election.Term) error {
			leads <- term.Token()
			<-ctx.Done()
			return nil
		}, election.Metadata(map[string]string{"address": "10.0.0.7"}))
	}
	go campaign(w.Fake)
	token := <-leads
	go campaign(w.Another(t, dblock.WithHost("second")))
	w.AwaitQueue(t, "indexer", 1)
	w.contains(w.get("elections"), "leads", "there", fmt.Sprint(token), "10.0.0.7", "1 candidate waits", "next second:")
	cancel()
	for range 2 {
		for waits := true; waits; {
			select {
			case <-leads: // elected when the first one left
			case err := <-done:
				if waits = false; err != nil {
					t.Error(err)
				}
			}
		}
	}
	w.lock("indexer/2") // another name, with which the list of names that begin so begins
	w.contains(w.get("elections"), "no leader", "no other candidate")
	w.lacks(w.get("elections"), "held by")
	w.lock("indexer")
	w.contains(w.get("elections"), "no leader", "which is no candidate")
}

func TestEventsArePagedAndChosen(t *testing.T) {
	w := newWorld(t)
	held := w.lock("n")
	for i := range 120 {
		require.NoError(t, held.Record(t.Context(), "step", fmt.Sprintf("step %03d.", i)))
	}
	first := w.get("events?name=n&kind=step,other")
	w.contains(first, "step 119.", "step 020.")
	w.lacks(first, "step 019.", "granted</span>")
	second := w.get(w.linkTo(first, "events?name=n&kind=step%2cother&before="))
	w.contains(second, "step 019.", "step 000.")
	w.lacks(second, "Earlier events", "step 020.")
	w.contains(w.get("events?name=nobody"), "is recorded")
	w.contains(w.get("lock?name=n"), "the latest 50", `href="events?name=n"`)
}
