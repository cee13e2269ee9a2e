package observe_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/observe"
)

// noting returns an Observer that writes down its calls, and puts its name into the context.
func noting(name string, calls *[]string) observe.Observer {
	note := func(what string) { *calls = append(*calls, name+" "+what) }
	return observe.Observer{
		AcquireStart: func(ctx context.Context, a observe.Attempt) context.Context {
			path, _ := ctx.Value(pathKey{}).(string)
			note("start " + a.Name + " in " + path)
			return context.WithValue(ctx, pathKey{}, path+name)
		},
		AcquireEnd: func(ctx context.Context, a observe.Attempt, r observe.AcquireResult) {
			note("end " + a.Name + " in " + ctx.Value(pathKey{}).(string) + " " + observe.Outcome(r.Err))
		},
		RunEnd:       func(r observe.RunResult) { note("run " + r.Name + " " + observe.Outcome(r.Err)) },
		SlotsLeftOut: func(s observe.LeftOut) { note("left out " + s.Name) },
		HoldEnd:      func(r observe.HoldResult) { note("hold " + r.Name + " " + observe.Outcome(r.Err)) },
		Heartbeat: func(took time.Duration, err error) {
			note("heartbeat " + took.String() + " " + observe.Outcome(err))
		},
		Listener: func(up bool, err error) { note("listener " + observe.Outcome(err)) },
	}
}

type pathKey struct{}

func TestObserversAreCalledInTheirOrderAndAtTheEndOfAnAcquireInTheOpposite(t *testing.T) {
	var calls []string
	all := observe.All(noting("a", &calls), observe.Observer{}, noting("b", &calls), noting("c", &calls))
	a := observe.Attempt{Name: "n"}
	ctx := all.AcquireStart(t.Context(), a)
	all.AcquireEnd(ctx, a, observe.AcquireResult{Err: dblock.ErrDeadlock})
	all.HoldEnd(observe.HoldResult{Name: "n", Err: dblock.ErrLost})
	all.RunEnd(observe.RunResult{Name: "j"})
	all.SlotsLeftOut(observe.LeftOut{Name: "j"})
	all.Heartbeat(time.Second, dblock.ErrUnavailable)
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
	full := reflect.TypeFor[observe.Observer]()
	for i := range full.NumField() {
		for _, first := range []bool{false, true} { // the observer with one callback only
			one := observe.Observer{}
			whole := reflect.ValueOf(noting("one", &calls))
			reflect.ValueOf(&one).Elem().Field(i).Set(whole.Field(i))
			all := observe.All(observe.Observer{}, one)
			if first {
				all = observe.All(one, observe.Observer{})
			}
			for j := range full.NumField() {
				if there := !reflect.ValueOf(all).Field(j).IsNil(); there != (i == j) {
					t.Errorf("with %s alone, first %v: %s is there: %v", full.Field(i).Name, first, full.Field(j).Name,
						there)
				}
			}
		}
	}
	if none := observe.All(); !reflect.ValueOf(none).IsZero() {
		t.Error("no observers make one")
	}
}

func TestOutcomesAreWords(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "ok"},
		{&dblock.NotAcquiredError{Host: "h"}, "refused"},
		{&dblock.NotAcquiredError{Cause: context.DeadlineExceeded}, "timeout"},
		{&dblock.LockError{Op: "lock", Name: "n", Err: &dblock.NotAcquiredError{Cause: context.Canceled}}, "canceled"},
		{&dblock.NotAcquiredError{Cause: errors.Join(context.DeadlineExceeded, dblock.ErrUnavailable)}, "timeout"},
		{&dblock.NotAcquiredError{Cause: errors.New("a cause of the application's own")}, "refused"},
		{&dblock.DeadlockError{}, "deadlock"},
		{errors.Join(dblock.ErrUnavailable, context.DeadlineExceeded), "unavailable"},
		{context.Canceled, "canceled"},
		{dblock.ErrLost, "lost"},
		{contract.Lost(contract.ErrLeaseOver), "expired"},
		{dblock.ErrClosed, "closed"},
		{dblock.ErrCapacity, "capacity"},
		{dblock.ErrSchema, "schema"},
		{dblock.ErrReadOnly, "read_only"},
		{dblock.ErrConfig, "config"},
		{dblock.ErrUnsupported, "unsupported"},
		{dblock.ErrInvalidName, "invalid"},
		{dblock.ErrInvalidOption, "invalid"},
		{dblock.ErrTxDone, "tx_done"},
		{dblock.ErrRetry, "retry"},
		{errors.Join(context.DeadlineExceeded, dblock.ErrRetry), "timeout"},
		{&dblock.NotAcquiredError{Cause: dblock.ErrRetry}, "refused"},
		{errors.New("something else"), "failed"},
	} {
		assert.Equal(t, observe.Outcome(c.err), c.want, c.err)
	}
}
