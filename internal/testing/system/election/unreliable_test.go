package election

import (
	"context"
	"errors"
	"slices"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

// goAway makes the database fail with an error of this kind.
func (p party) goAway(kind error) {
	err := driver.Fail(kind, errors.New("away"))
	p.away.Store(&err)
}

func (p party) comeBack() { p.away.Store(nil) }

// errHeldUp is an error of goAway: the next release does not answer before its context ends.
var errHeldUp = errors.New("held up")

// hook is that of an engine that can be away. One that is read-only can be read.
func (p party) hook(ctx context.Context, c *fakedb.Call) error {
	err := p.away.Load()
	if err == nil {
		return c.Do(ctx)
	}
	if _, removes := c.Op().(protocol.Removal); removes && errors.Is(*err, errHeldUp) {
		p.heldUp <- struct{}{}
		p.comeBack()
		<-ctx.Done()
		return driver.Fail(driver.ErrUnavailable, ctx.Err())
	}
	_, takes := c.Op().(protocol.Take)
	switch {
	case takes, slices.Contains([]string{"OpenSession", "Heartbeat", "Beat"}, c.Method):
		return *err
	case c.Method == "Read" && c.Waiters == 0: // not an observer's
	case slices.Contains([]string{"Events", "Read", "Schema"}, c.Method) && !errors.Is(*err, driver.ErrReadOnly):
		return *err
	}
	return c.Do(ctx)
}
