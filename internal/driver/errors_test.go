package driver

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestAnErrorOfAKindSaysSoOnce(t *testing.T) {
	cause := errors.New("the server says so")
	err := Fail(ErrReadOnly, Fail(ErrReadOnly, fmt.Errorf("a wrapper: %w", Fail(ErrReadOnly, cause))))
	if !errors.Is(err, ErrReadOnly) || !errors.Is(err, cause) || err.Error() != "a wrapper: "+ErrReadOnly.Error()+": "+
		cause.Error() {
		t.Error(err)
	}
}

func TestJoinedErrorsStandOnOneLine(t *testing.T) {
	lost, late := errors.New("lost: no heartbeat"), fmt.Errorf("late: %w", context.DeadlineExceeded)
	many := make([]error, 1000)
	for i := range many {
		many[i] = fmt.Errorf("lock %d", i)
	}
	for want, errs := range map[string][]error{
		"lost: no heartbeat": {nil, lost},
		"lost: no heartbeat; late: context deadline exceeded": {lost, late, context.DeadlineExceeded},
		"late: context deadline exceeded; lost: no heartbeat": {errors.Join(late, lost), lost},
		"lock 0; lock 1; lock 2; lock 3; lock 4; lock 5; lock 6; lock 7; lock 8; lock 9; " +
			"and 990 more": many,
	} {
		err := Join(errs...)
		assert.Equal(t, err.Error(), want, "it says", err)
		for _, one := range errs {
			if one != nil && !errors.Is(err, one) {
				t.Errorf("%q is not %v", err, one)
			}
		}
	}
	if Join() != nil || Join(nil, nil) != nil {
		t.Error("an error of none")
	}
}

func TestAFailureStandsOnOneLine(t *testing.T) {
	cause := errors.New("cannot connect to app:\n\tfirst: refused\n\tsecond: refused\n\tsecond: refused")
	err := Fail(ErrUnavailable, cause)
	if want := ErrUnavailable.Error() +
		": cannot connect to app: first: refused; second: refused"; err.Error() != want || !errors.Is(err, cause) {
		t.Errorf("it says %q: want %q", err, want)
	}
}
