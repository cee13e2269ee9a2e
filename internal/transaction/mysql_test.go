package transaction

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// server answers a SELECT with no row, after a while.
type server struct{ after time.Duration }

func (server) Exec(context.Context, string, ...any) error { return nil }

func (s server) Row(context.Context, string, []any, ...any) (bool, error) {
	<-time.After(s.after)
	return false, nil
}

// Broken by taking what MariaDB answers to a statement that its limit has ended for a missing row.
func TestNoRowAfterAWholeTurnIsATurnThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for after, want := range map[time.Duration]error{0: nil, Turn - 1: nil, Turn: ErrCut, Turn + 1: ErrCut} {
			if there, err := LockInTurn(t.Context(), server{after}, "SELECT", nil); there || !errors.Is(err, want) {
				t.Errorf("after %v: %v, %v", after, there, err)
			}
		}
		if !IsTurnOver(ErrCut) {
			t.Error("the wait ends with the turn")
		}
	})
}
