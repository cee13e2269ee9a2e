package client

import "github.com/dblock-go/dblock/internal/driver"

// mode is how a hold is held in the database.
type mode struct {
	token int64
	last  int64 // identifies the hold in the database: of a cohort, the last token
	units int   // 0: the whole name
	of    int
	doubt doubt
}

// doubt is how sure the client is of a mode.
type doubt int

const (
	certain  doubt = iota
	lookedUp       // read after the answer to a conversion was lost: it may still run, and only the attempt identifies the hold
	unknown        // the answer to a conversion was lost: the mode has to be read
	yielding       // unknown, during and after a Downgrade: readers may come in beside the hold
)

// vague reports whether the mode has to be read.
func (m *mode) vague() bool { return m.doubt >= unknown }

func (m *mode) shared() bool { return m.units > 0 }

// permit reports whether the hold is units of a semaphore, which is never entered again.
func (m *mode) permit() bool { return m.units > 0 && m.of != driver.Readers }
