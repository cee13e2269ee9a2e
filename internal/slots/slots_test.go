package slots

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

const now = 1234

var (
	tens   = driver.Slot{Length: 10 * time.Microsecond} // the slot 123, from 1230 to 1240
	moment = driver.Slot{Moment: 1230}
)

// fake holds the runs of one name. It claims a slot only where nobody comes before.
type fake struct {
	rows   []Row
	before []Row // what there is once the first claim is made, which then is refused
	over   int64
}

func (f *fake) Clock() (int64, error) { return now, nil }

func (f *fake) About(About) ([]Row, error) { return f.rows, nil }

func (f *fake) Claim(_ Row, over int64) (bool, error) {
	if f.over = over; f.before == nil {
		return true, nil
	}
	f.rows, f.before = f.before, nil
	return false, nil
}

var (
	never = driver.Retry{}
	often = driver.Retry{Most: 9}
)

// ran is a run that has ended well, in its second try.
func ran(slot, ends, began int64) Row {
	return Row{Slot: slot, SlotEnds: ends, BeganAt: began, EndedAt: began + 1, Token: 7, Tries: 2, NowUs: now}
}

func failed(r Row) Row { r.Failed = true; return r }

// running is a run that has not ended, and whose session lives until a time.
func running(r Row, until int64) Row { r.EndedAt, r.SessionExpiresAt = 0, until; return r }

func TestASlotIsDueUnlessARunStandsForIt(t *testing.T) {
	own := running(ran(123, 1240, 1231), now+1)
	own.Token = 8
	ended := own
	ended.EndedAt = 1232
	for _, test := range []struct {
		says  string
		slot  driver.Slot
		retry driver.Retry
		rows  []Row
		due   bool
		over  int64 // the run whose place is taken
		tries int
	}{
		{"a job that never ran", tens, never, nil, true, 0, 1},
		{"a slot that ran", tens, often, []Row{ran(123, 1240, 1231)}, false, 0, 2},
		{"one that failed, without a retry", tens, never, []Row{failed(ran(123, 1240, 1231))}, false, 0, 2},
		{"one that failed", tens, often, []Row{failed(ran(123, 1240, 1231))}, true, 7, 3},
		{"one that failed as often as it may", tens, driver.Retry{Most: 1}, []Row{failed(ran(123, 1240, 1231))}, false,
			0, 2},
		{"and once less often", tens, driver.Retry{Most: 2}, []Row{failed(ran(123, 1240, 1231))}, true, 7, 3},
		{"one that failed a moment ago", tens, driver.Retry{Most: 9, Backoff: 2 * time.Microsecond},
			[]Row{failed(ran(123, 1240, 1231))}, false, 0, 2},
		{"one that failed long enough ago", tens, driver.Retry{Most: 9, Backoff: time.Microsecond},
			[]Row{failed(ran(123, 1240, 1231))}, true, 7, 3},
		{"one whose process died a moment ago", tens, driver.Retry{Most: 9, Backoff: 2 * time.Microsecond},
			[]Row{running(ran(123, 1240, 1231), now)}, false, 0, 2},
		{"one that runs", tens, often, []Row{running(ran(123, 1240, 1231), now+1)}, false, 0, 2},
		{"one whose session is over", tens, often, []Row{running(ran(123, 1240, 1231), now)}, true, 7, 3},
		{"one whose session is dead", tens, often, []Row{running(ran(123, 1240, 1231), 0)}, true, 7, 3},
		{"one whose session is dead, without a retry", tens, never, []Row{running(ran(123, 1240, 1231), 0)}, false, 0,
			2},
		{"the slot before", tens, never, []Row{ran(122, 1230, 1229)}, true, 0, 1},
		{"the slot before, which began late", tens, never, []Row{ran(122, 1230, 1231)}, true, 0, 1},
		{"a slot of another interval with the same number", tens, never, []Row{ran(123, 124, 120)}, true, 7, 1},
		{"and its run began within this one", tens, never, []Row{ran(123, 2000, 1231)}, false, 0, 2},
		{"a run of another interval at its begin", tens, never, []Row{ran(61, 1240, 1230)}, false, 0, 2},
		{"before its begin", tens, never, []Row{ran(61, 1240, 1229)}, true, 0, 1},
		{"at its end", tens, never, []Row{ran(61, 1250, 1240)}, true, 0, 1},
		{"a failed run of another interval", tens, never, []Row{failed(ran(61, 1240, 1231))}, false, 0, 2},
		{"a failed run of another interval, with a retry", tens, often, []Row{failed(ran(61, 1240, 1231))}, true, 0, 1},
		{"beside one that has not failed", tens, often, []Row{failed(ran(61, 1240, 1231)), ran(40, 1260, 1231)}, false,
			0, 2},
		{"a slot that failed beside another interval's run", tens, often, []Row{failed(ran(123, 1240, 1231)),
			ran(61, 1240, 1231)}, true, 7, 3},
		{"a run of a moment within the slot", tens, never, []Row{ran(1231, 1231, 1231)}, false, 0, 2},
		{"a moment that never ran", moment, never, nil, true, 0, 1},
		{"a moment that ran", moment, often, []Row{ran(1230, 1230, 1231)}, false, 0, 2},
		{"a moment that failed", moment, often, []Row{failed(ran(1230, 1230, 1231))}, true, 7, 3},
		{"an earlier moment", moment, never, []Row{ran(1229, 1229, 1229)}, true, 0, 1},
		{"an earlier moment that ran later", moment, never, []Row{ran(1229, 1229, 1231)}, true, 0, 1},
		{"a later moment", moment, never, []Row{ran(1231, 1231, 1231)}, false, 0, 2},
		{"a later moment that failed", moment, often, []Row{failed(ran(1231, 1231, 1231))}, false, 0, 2},
		{"a moment that failed before a later one", moment, often, []Row{failed(ran(1230, 1230, 1231)),
			ran(1231, 1231, 1231)}, false, 0, 2},
		{"a run of an interval at the moment", moment, never, []Row{ran(123, 1240, 1230)}, false, 0, 2},
		{"a run of an interval long after it", moment, never, []Row{ran(999, 9999, 9991)}, false, 0, 2},
		{"a run of an interval before it", moment, never, []Row{ran(123, 1240, 1229)}, true, 0, 1},
		{"a failed run of an interval", moment, often, []Row{failed(ran(123, 1240, 1230))}, true, 0, 1},
		{"a moment that failed, and a run of an interval", moment, often, []Row{failed(ran(1230, 1230, 1231)),
			ran(123, 1240, 1231)}, false, 0, 2},
	} {
		t.Run(test.says, func(t *testing.T) {
			f := &fake{rows: test.rows}
			run, ours, err := Begin(f, driver.Run{Name: "n", Token: 8, Session: "s"}, test.slot, test.retry)
			if err != nil || ours != test.due || f.over != test.over || run.Tries != test.tries {
				t.Fatalf("%+v, ours %v over %d, %v", run, ours, f.over, err)
			}
			number, _, ends := test.slot.At(now)
			if test.due && (run.Slot != number || run.SlotEnds != time.UnixMicro(ends) || run.Token != 8 ||
				run.Session != "s" ||
				run.Began != time.UnixMicro(now) || run.Failed || !run.Ended.IsZero()) {
				t.Errorf("it began %+v", run)
			}
		})
	}
	for _, test := range []struct {
		says string
		row  Row
		ours bool
	}{{"the caller's own claim", own, true}, {"the caller's own run, which has ended", ended, false}} {
		if run, ours, err := Begin(&fake{rows: []Row{test.row}}, driver.Run{Token: 8}, tens,
			often); ours != test.ours || run.Token != 8 || err != nil {
			t.Errorf("%s: %+v, %v, %v", test.says, run, ours, err)
		}
	}
}

func TestAClaimThatComesTooLateFindsTheRun(t *testing.T) {
	f := &fake{before: []Row{running(ran(123, 1240, 1231), now+1)}}
	run, ours, err := Begin(f, driver.Run{Token: 8}, tens, often)
	if err != nil || ours || run.Token != 7 {
		t.Errorf("%+v, %v, %v", run, ours, err)
	}
}

func TestAMomentFarAheadIsNotBegun(t *testing.T) {
	far := driver.Slot{Moment: now + driver.MaxAhead.Microseconds()}
	if _, ours, err := Begin(&fake{}, driver.Run{}, far, never); !ours || err != nil {
		t.Errorf("%v, %v, want begun", ours, err)
	}
	far.Moment++
	if run, ours, err := Begin(&fake{}, driver.Run{}, far, never); ours || err != nil || !far.Early(run.Seen) {
		t.Errorf("%+v, %v, %v, want a run that was not begun", run, ours, err)
	}
}

func TestRunsAreShownAsTheyAre(t *testing.T) {
	rows := []Row{ran(123, 1240, 1231), running(ran(122, 1230, 1221), now), running(ran(121, 1220, 1211), now+1)}
	runs := List(rows)
	if runs[0].Ended != time.UnixMicro(1232) || !runs[1].Ended.IsZero() || runs[0].SlotEnds != time.UnixMicro(1240) {
		t.Errorf("%+v", runs)
	}
	if failed := []bool{runs[0].Failed, runs[1].Failed, runs[2].Failed}; !slices.Equal(failed,
		[]bool{false, true, false}) {
		t.Errorf("failed: %v", failed)
	}
	if Before(time.Time{}) != math.MaxInt64 || Before(time.UnixMicro(5)) != 5 {
		t.Error("the bound of Runs")
	}
}
