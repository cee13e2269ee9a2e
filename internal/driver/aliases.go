package driver

import "github.com/dblock-go/dblock/internal/protocol"

// The values that go in and out of a transition. Package protocol documents them.
type (
	Request    = protocol.Request
	Grant      = protocol.Grant
	Held       = protocol.Held
	Handoff    = protocol.Handoff
	Hint       = protocol.Hint
	Event      = protocol.Event
	Holder     = protocol.Holder
	Removal    = protocol.Removal
	Detachment = protocol.Detachment
)

// Readers is the capacity of a name with readers and writers.
const Readers = protocol.Readers

// The causes for which a hold or a place leaves a name.
const (
	ByHolder  = protocol.ByHolder
	ByAttempt = protocol.ByAttempt
	ByTime    = protocol.ByTime
	ByForce   = protocol.ByForce
	Nothing   = protocol.Nothing
)
