package fakedb

import (
	"github.com/dblock-go/dblock/engines"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
)

// On is an engine on a backend, without locks inside transactions.
func On[TX any](b driver.Backend) engines.Engine[TX] {
	return *inside.Make[engines.Engine[TX]](driver.Engine[TX]{Backend: b})
}

// Through is an engine whose calls go through a hook; nil: they go to the engine itself.
func Through[TX any](e engines.Engine[TX], h Hook) engines.Engine[TX] {
	if h == nil {
		return e
	}
	in := inside.Of(e)
	in.Backend = Hooked(in.Backend, h)
	return *inside.Make[engines.Engine[TX]](in)
}
