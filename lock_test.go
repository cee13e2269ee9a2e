package dblock_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
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

func TestAnErrorThatIsOfNoNameShowsNone(t *testing.T) {
	for want, e := range map[string]dblock.LockError{
		"dblock: list: broken":      {Op: "list", Err: errors.New("broken")},
		`dblock: list "a/": broken`: {Op: "list", Name: "a/", Err: errors.New("broken")},
	} {
		assert.Equal(t, e.Error(), want)
	}
}
