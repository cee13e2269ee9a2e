package client

import "github.com/dblock-go/dblock/internal/driver"

// mode is what a hold is in the database.
type mode struct {
	token int64
	last  int64 // by which the database knows the hold: of a cohort, the last token
	units int   // 0: the whole name
	of    int
	late  bool // a conversion that was not answered may still run: only the attempt is certain to identify the hold

	vague    bool // the answer to a conversion was lost: what the hold is must be looked up
	yielding bool // a Downgrade is under way, or its answer was lost: readers may come in beside it
}

func (m *mode) shared() bool { return m.units > 0 }

// permit reports whether it is units of a semaphore, which nobody enters again.
func (m *mode) permit() bool { return m.units > 0 && m.of != driver.Readers }
