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

// SeveralWriters is severalWriters.
var SeveralWriters = severalWriters

// OnSeveralWriters has an engine believe that its server is one of several nodes that write, or is not, until it reserves
// another connection.
func OnSeveralWriters(b driver.Backend, which string) {
	b.(*engine).facts.Store(&facts{writers: which})
}
