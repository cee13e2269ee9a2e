package dblockweb

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/jobs"
)

const (
	shownJobs  = 20
	shownSlots = 50 // of a strip
	shownRuns  = 50 // of one job; at least shownSlots, so that a strip is complete
)

type jobList struct {
	After string
	List  []job
	Next  string // the job after which the list continues; "": there are no more
}

type job struct {
	Name  string
	Every time.Duration // 0: its slots are moments (OnceAt)
	Last  jobs.Run
	Runs  []jobs.Run // the latest first
	Strip strip
	Full  bool // there may be earlier runs

	Failed bool // one of the runs has a reason
}

// loadJobs reads jobs in the order of their names. The library cannot begin at a name: jobs before
// a later page are read with it.
func loadJobs(ctx context.Context, q query) (any, error) {
	j := jobList{After: q.get("after")}
	for run, err := range q.of.Jobs(ctx) {
		if err != nil {
			return nil, err
		}
		if run.Name <= j.After {
			continue
		}
		one, err := readJob(ctx, q.of, run.Name)
		if err != nil {
			return nil, err
		}
		if j.List = append(j.List, one); len(j.List) == shownJobs {
			j.Next = run.Name
			break
		}
	}
	return j, nil
}

func loadJob(ctx context.Context, q query) (any, error) {
	if q.get("name") == "" {
		return nil, badRequest("Which job? The address names none.")
	}
	return readJob(ctx, q.of, q.get("name"))
}

func readJob(ctx context.Context, of Source, name string) (job, error) {
	runs, err := take(of.Runs(ctx, name), shownRuns)
	j := job{Name: name, Runs: runs, Full: len(runs) == shownRuns}
	j.Failed = slices.ContainsFunc(runs, func(r jobs.Run) bool { return r.Err != "" })
	if len(runs) > 0 {
		j.Last, j.Every = runs[0], interval(runs[0])
	}
	j.Strip = stripOf(runs, time.Now())
	return j, err
}

// interval is the length of a run's slot; 0: its slot is a moment.
func interval(r jobs.Run) time.Duration { return r.SlotEnds.Sub(r.SlotBegins) }

// result describes the outcome of a run.
func result(r jobs.Run) string {
	switch {
	case r.Err != "":
		return "failed"
	case r.Ended.IsZero():
		return "running"
	}
	return "ran"
}

// strip is a picture of slots, the latest last.
type strip struct {
	Width                int
	Cells                []cell
	Ran, Failed, Missed  int
	Slots                bool // missed slots are known
	CellWidth, CellSpace int
}

type cell struct {
	X     int
	Class string // "ran", "failed", "running", "missed", "open" or "unknown"
	Title string
}

const cellStep = 10

func (s *strip) add(class, title string) {
	s.Cells = append(s.Cells, cell{X: len(s.Cells) * cellStep, Class: class, Title: title})
	s.Width = len(s.Cells) * cellStep
	switch class {
	case "ran":
		s.Ran++
	case "failed":
		s.Failed++
	case "missed":
		s.Missed++
	}
}

// stripOf draws runs, the latest first. For OncePer it draws the slots of the latest interval up to
// the present one, which follow from its length, also slots without a run. A slot before the first
// run that was read is unknown, and the present one is open: neither is missed. now is by this
// machine's clock.
func stripOf(runs []jobs.Run, now time.Time) strip {
	var s strip
	if len(runs) == 0 {
		return s
	}
	every := interval(runs[0])
	if every <= 0 {
		for _, r := range slices.Backward(runs[:min(len(runs), shownSlots)]) {
			s.add(result(r), fmt.Sprintf("%s UTC: %s", clock(r.SlotEnds), describe(r)))
		}
		return s
	}
	s.Slots = true
	present := max(now.UnixMicro()/every.Microseconds(), runs[0].Slot)
	first := runs[len(runs)-1].Began
	for slot := present - shownSlots + 1; slot <= present; slot++ {
		begins := time.UnixMicro(slot * every.Microseconds())
		class, title := slotOf(runs, begins, begins.Add(every))
		if class == "missed" && slot == present {
			class, title = "open", "it has not run yet"
		}
		if class == "missed" && begins.Before(first) {
			class, title = "unknown", "nothing is known of this slot"
		}
		s.add(class, fmt.Sprintf("%s UTC: %s", clock(begins), title))
	}
	return s
}

// slotOf returns the state of a slot: that of its own run, or of a run that began in it under
// another interval.
func slotOf(runs []jobs.Run, begins, ends time.Time) (class, title string) {
	for _, r := range runs {
		if r.SlotEnds.Equal(ends) && interval(r) == ends.Sub(begins) {
			return result(r), describe(r)
		}
	}
	for _, r := range runs {
		if !r.Began.Before(begins) && r.Began.Before(ends) && interval(r) != ends.Sub(begins) {
			return result(r), describe(r)
		}
	}
	for _, r := range runs {
		if r.Began.Before(begins) && (!r.Ended.IsZero() && r.Ended.After(ends) || r.Ended.IsZero() && r.Err == "" &&
			r.SlotEnds.Equal(runs[0].SlotEnds)) {
			return "missed", "no run began: the one before went on"
		}
	}
	return "missed", "no run began"
}

func describe(r jobs.Run) string {
	switch {
	case r.Err != "":
		return "failed: " + printable(r.Err)
	case r.Ended.IsZero():
		return "runs, or its process died"
	}
	return "ran, in " + r.Ended.Sub(r.Began).Round(time.Millisecond).String()
}
