package contract

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

type key struct{}

var errOver = errors.New("over")

// asked returns a context that ends with errOver when it is asked once over was called.
func asked(ctx context.Context) (_ context.Context, over func()) {
	inner, cancel := context.WithCancelCause(ctx)
	isOver := false
	return Asking(inner, func() {
		if isOver {
			cancel(errOver)
		}
	}), func() { isOver = true }
}

// Broken by an answer that a timer has to come before.
func TestAContextAsksBeforeItAnswers(t *testing.T) {
	for what, ends := range map[string]func(ctx context.Context) bool{
		"Err":   func(ctx context.Context) bool { return ctx.Err() == context.Canceled },
		"Cause": func(ctx context.Context) bool { return context.Cause(ctx) == errOver },
		"Done": func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
		"a new context": func(ctx context.Context) bool {
			below, cancel := context.WithTimeout(ctx, 1<<60)
			defer cancel()
			return below.Err() == context.Canceled && context.Cause(below) == errOver
		},
		"one with another value": func(ctx context.Context) bool {
			return context.WithValue(ctx, t, 1).Err() == context.Canceled
		},
		"UntilEither of it": func(ctx context.Context) bool {
			either, cancel := UntilEither(ctx, context.Background())
			defer cancel(nil)
			return context.Cause(either) == errOver
		},
	} {
		ctx, over := asked(context.WithValue(t.Context(), key{}, []int{1})) // a value that cannot be compared
		_ = map[context.Context]bool{ctx: true}                             // an application may compare contexts
		before, cancel := context.WithCancel(ctx)
		defer cancel()
		if ends(ctx) || ctx.Value(key{}) == nil {
			t.Errorf("%s: it has ended, or lost its values", what)
		}
		if over(); !ends(ctx) || before.Err() == nil || context.Cause(before) != errOver {
			t.Errorf("%s: it is live", what)
		}
	}
}

// Broken by a context that waits for a goroutine to tell it.
func TestAContextWithTwoEndsAsksBoth(t *testing.T) {
	for _, first := range []bool{true, false} {
		a, aOver := asked(t.Context())
		b, bOver := asked(t.Context())
		either, cancel := UntilEither(a, b)
		defer cancel(nil)
		assert.NoError(t, either.Err())
		if first {
			aOver()
		} else {
			bOver()
		}
		assert.ErrorIs(t, context.Cause(either), errOver)
	}
	synctest.Test(t, func(t *testing.T) {
		other, end := context.WithCancelCause(t.Context())
		either, cancel := UntilEither(t.Context(), other)
		defer cancel(nil)
		done := either.Done()
		end(errOver)
		<-done // without being asked
		assert.ErrorIs(t, context.Cause(either), errOver)
	})
}
