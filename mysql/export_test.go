package mysql

import (
	"time"

	"github.com/dblock-go/dblock/driver"
)

// Patient has an engine come back to a locked row for as long as a test takes, and call obstructed each time.
func Patient(b driver.Backend, obstructed func()) {
	e := b.(*engine)
	e.patience, e.obstructed = time.Minute, obstructed
}
