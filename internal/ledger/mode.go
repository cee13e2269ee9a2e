package ledger

import (
	"sync"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/protocol"
)

// Mode is how a hold is held in the database.
type Mode struct {
	Token int64
	Last  int64 // identifies the hold in the database: of a cohort, the last token
	Units int   // 0: the whole name
	Of    int
	Doubt Doubt
}

// Doubt is how sure the client is of a mode.
type Doubt int

// The doubts.
const (
	Certain Doubt = iota
	// LookedUp is a mode that was read after the answer to a conversion was lost. The conversion
	// may still run: only the attempt identifies the hold.
	LookedUp
	Unknown  // the answer to a conversion was lost: the mode has to be read
	Yielding // unknown, during and after a Downgrade: readers may come in beside the hold
)

// Vague reports whether the mode has to be read.
func (m *Mode) Vague() bool { return m.Doubt >= Unknown }

// Shared reports whether others may hold the name as well.
func (m *Mode) Shared() bool { return m.Units > 0 }

// permit reports whether the hold is of a semaphore's units, which are never entered again.
func (m *Mode) permit() bool { return m.Units > 0 && m.Of != protocol.Readers }

// modeBox has the mode of a hold. A goroutine that changes the mode locks the RWMutex; one that
// relies on the mode share-locks it.
type modeBox struct {
	sync.RWMutex
	atomic.Pointer[Mode]
}
