package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// A wrong password is said at once. One that is being changed is waited for.
func TestAPasswordThatIsChangedIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaper()
		p.why = driver.Fail(driver.ErrDenied, errors.New("wrong"))
		c := newPaperClient(t, p, nil)
		w := want("n")
		p.leave()
		began := time.Now()
		if _, err := c.Acquire(t.Context(), &w, true); !errors.Is(err, driver.ErrDenied) ||
			errors.Is(err, driver.ErrUnavailable) {
			t.Error(err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("said after %v", took)
		}
		p.comeBack()
		acquire(t, t.Context(), c, "before")
		p.leave()
		go func() {
			time.Sleep(5 * time.Second)
			p.comeBack()
		}()
		acquire(t, t.Context(), c, "n")
		p.leave()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w = want("m")
		if _, err := c.Acquire(ctx, &w, true); !errors.Is(err, driver.ErrDenied) ||
			!errors.Is(err, driver.ErrUnavailable) {
			t.Error(err)
		}
		p.comeBack()
	})
}
