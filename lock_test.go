package dblock_test

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/jobs"
)

func TestALockThatIsNilIsRefusedAndDoesNotPanic(t *testing.T) {
	client := dblocktest.New[*sql.Tx](t).Client
	for what, l := range map[string]*dblock.Lock{"nil": nil, "that no client returned": {}} {
		for op, call := range map[string]func() error{
			"Unlock":     func() error { return l.Unlock(t.Context()) },
			"Downgrade":  func() error { return l.Downgrade(t.Context()) },
			"TryUpgrade": func() error { return l.TryUpgrade(t.Context()) },
			"Extend":     func() error { return l.Extend(t.Context(), time.Minute) },
			"Record":     func() error { return l.Record(t.Context(), "kind", "detail") },
			"Guard":      func() error { return client.Guard(t.Context(), &sql.Tx{}, l) },
			"UnlockTx":   func() error { return client.UnlockTx(t.Context(), &sql.Tx{}, l) },
		} {
			if err := call(); !errors.Is(err, dblock.ErrInvalidOption) || strings.Contains(err.Error(), `""`) {
				t.Errorf("%s of a lock %s: %v", op, what, err)
			}
		}
		if l.Name() != "" || l.Token() != 0 || !l.Until().IsZero() || l.Shared() || l.Asked() != nil {
			t.Errorf("a lock %s has a name, a token, an end, shares or a channel", what)
		}
		if ctx := l.Context(); ctx.Err() == nil || !errors.Is(context.Cause(ctx), dblock.ErrNotHeld) {
			t.Errorf("the context of a lock %s has cause %v", what, context.Cause(ctx))
		}
	}
}

// Broken by a method that goes on without the client.
func TestAClientThatIsNilIsRefusedAndDoesNotPanic(t *testing.T) {
	for what, c := range map[string]*dblock.Client[*sql.Tx]{"nil": nil, "that New did not return": {}} {
		methods := 0
		for _, of := range []reflect.Value{reflect.ValueOf(c), reflect.ValueOf(c.Locker())} {
			for i := range of.NumMethod() {
				op := of.Type().Method(i).Name
				if op == "Locker" { // its methods follow
					continue
				}
				methods++
				results := of.Method(i).Call(plausible(t, of.Method(i).Type()))
				for n, result := range results {
					err, fails := result.Interface().(error)
					switch {
					case n == len(results)-1 && fails:
						if !errors.Is(err, dblock.ErrInvalidOption) ||
							!strings.Contains(err.Error(), "the client is nil") {
							t.Errorf("%s of a client %s: %v", op, what, err)
						}
					case !result.IsZero():
						t.Errorf("%s of a client %s returns %v", op, what, result)
					case result.Type() == reflect.TypeFor[error]():
						t.Errorf("%s of a client %s returns no error", op, what)
					}
				}
			}
		}
		if methods < 20 {
			t.Errorf("%d methods", methods)
		}
		i, r := inspect.New(c), jobs.New(c)
		for name, err := range map[string]error{
			"List": first(i.List(t.Context(), inspect.Filter{})), "Watch": first(i.Watch(t.Context(), "n")),
			"Lock": assert.ErrOf(i.Lock(t.Context(), "n")), "Jobs": first(r.Jobs(t.Context())),
			"OncePer": assert.ErrOf(r.OncePer(t.Context(), "n", time.Hour,
				func(context.Context, *dblock.Lock, time.Time) error { return nil })),
		} {
			if !errors.Is(err, dblock.ErrInvalidOption) || !strings.Contains(err.Error(), "the client is nil") {
				t.Errorf("%s with a client %s: %v", name, what, err)
			}
		}
	}
}

func first[T any](rows iter.Seq2[T, error]) error {
	for _, err := range rows {
		return err
	}
	return nil
}

// plausible returns arguments that a call does not refuse for themselves, without options.
func plausible(t *testing.T, f reflect.Type) (args []reflect.Value) {
	for i := range f.NumIn() {
		switch in := f.In(i); {
		case f.IsVariadic() && i == f.NumIn()-1 && in == reflect.TypeFor[[]string](): // names
			args = append(args, reflect.ValueOf("n"))
		case f.IsVariadic() && i == f.NumIn()-1:
		case in == reflect.TypeFor[context.Context]():
			args = append(args, reflect.ValueOf(t.Context()))
		case in == reflect.TypeFor[*sql.Tx]():
			args = append(args, reflect.ValueOf(&sql.Tx{}))
		case in == reflect.TypeFor[[]string]():
			args = append(args, reflect.ValueOf([]string{"n"}))
		case in.Kind() == reflect.String:
			args = append(args, reflect.ValueOf("n"))
		case in.Kind() == reflect.Func:
			args = append(args, reflect.MakeFunc(in, func([]reflect.Value) []reflect.Value {
				t.Error("the function runs")
				return []reflect.Value{reflect.Zero(in.Out(0))}
			}))
		case in.Kind() == reflect.Int64:
			args = append(args, reflect.ValueOf(int64(1)))
		default:
			t.Fatalf("a parameter of type %v", in)
		}
	}
	return args
}

func TestAnErrorThatIsOfNoNameShowsNone(t *testing.T) {
	for want, e := range map[string]dblock.LockError{
		"dblock: list: broken":      {Op: "list", Err: errors.New("broken")},
		`dblock: list "a/": broken`: {Op: "list", Name: "a/", Err: errors.New("broken")},
	} {
		assert.Equal(t, e.Error(), want)
	}
}
