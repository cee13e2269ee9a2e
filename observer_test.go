package dblock

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
)

// noting is an Observer that writes down its calls, and puts its name into the context.
func noting(name string, calls *[]string) Observer {
	note := func(what string) { *calls = append(*calls, name+" "+what) }
	return Observer{
		AcquireStart: func(ctx context.Context, a Attempt) context.Context {
			path, _ := ctx.Value(pathKey{}).(string)
			note("start " + a.Name + " in " + path)
			return context.WithValue(ctx, pathKey{}, path+name)
		},
		AcquireEnd: func(ctx context.Context, a Attempt, r AcquireResult) {
			note("end " + a.Name + " in " + ctx.Value(pathKey{}).(string) + " " + Outcome(r.Err))
		},
		RunEnd:       func(r RunResult) { note("run " + r.Name + " " + Outcome(r.Err)) },
		SlotsLeftOut: func(s LeftOut) { note("left out " + s.Name) },
		HoldEnd:      func(r HoldResult) { note("hold " + r.Name + " " + Outcome(r.Err)) },
		Heartbeat:    func(took time.Duration, err error) { note("heartbeat " + took.String() + " " + Outcome(err)) },
		Listener:     func(up bool, err error) { note("listener " + Outcome(err)) },
	}
}

type pathKey struct{}

func TestObserversAreCalledInTheirOrderAndAtTheEndOfAnAcquireInTheOpposite(t *testing.T) {
	var calls []string
	all := Observers(noting("a", &calls), Observer{}, noting("b", &calls), noting("c", &calls))
	a := Attempt{Name: "n"}
	ctx := all.AcquireStart(t.Context(), a)
	all.AcquireEnd(ctx, a, AcquireResult{Err: ErrDeadlock})
	all.HoldEnd(HoldResult{Name: "n", Err: ErrLost})
	all.RunEnd(RunResult{Name: "j"})
	all.SlotsLeftOut(LeftOut{Name: "j"})
	all.Heartbeat(time.Second, ErrUnavailable)
	all.Listener(true, nil)
	want := []string{
		"a start n in ", "b start n in a", "c start n in ab",
		"c end n in abc deadlock", "b end n in abc deadlock", "a end n in abc deadlock",
		"a hold n lost", "b hold n lost", "c hold n lost",
		"a run j ok", "b run j ok", "c run j ok",
		"a left out j", "b left out j", "c left out j",
		"a heartbeat 1s unavailable", "b heartbeat 1s unavailable", "c heartbeat 1s unavailable",
		"a listener ok", "b listener ok", "c listener ok",
	}
	if !slices.Equal(calls, want) {
		t.Errorf("called\n%q, want\n%q", calls, want)
	}
}

func TestACallbackThatNoObserverHasStaysNil(t *testing.T) {
	var calls []string
	full := reflect.TypeFor[Observer]()
	for i := range full.NumField() {
		for _, first := range []bool{false, true} { // the observer with one callback only
			one := Observer{}
			whole := reflect.ValueOf(noting("one", &calls))
			reflect.ValueOf(&one).Elem().Field(i).Set(whole.Field(i))
			all := Observers(Observer{}, one)
			if first {
				all = Observers(one, Observer{})
			}
			for j := range full.NumField() {
				if there := !reflect.ValueOf(all).Field(j).IsNil(); there != (i == j) {
					t.Errorf("with %s alone, first %v: %s is there: %v", full.Field(i).Name, first, full.Field(j).Name, there)
				}
			}
		}
	}
	if none := Observers(); !reflect.ValueOf(none).IsZero() {
		t.Error("no observers make one")
	}
}

func TestOutcomesAreWords(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "ok"},
		{&NotAcquiredError{Host: "h"}, "refused"},
		{&NotAcquiredError{Cause: context.DeadlineExceeded}, "timeout"},
		{&LockError{"lock", "n", &NotAcquiredError{Cause: context.Canceled}}, "canceled"},
		{&NotAcquiredError{Cause: errors.Join(context.DeadlineExceeded, ErrUnavailable)}, "timeout"},
		{&NotAcquiredError{Cause: errors.New("a cause of the application's own")}, "refused"},
		{&DeadlockError{}, "deadlock"},
		{errors.Join(ErrUnavailable, context.DeadlineExceeded), "unavailable"},
		{context.Canceled, "canceled"},
		{ErrLost, "lost"},
		{contract.Lost(contract.ErrLeaseOver), "expired"},
		{ErrClosed, "closed"},
		{ErrCapacity, "capacity"},
		{ErrSchema, "schema"},
		{ErrReadOnly, "read_only"},
		{ErrConfig, "config"},
		{ErrUnsupported, "unsupported"},
		{ErrInvalidName, "invalid"},
		{ErrInvalidOption, "invalid"},
		{ErrTxDone, "tx_done"},
		{errors.New("something else"), "failed"},
	} {
		if got := Outcome(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
