// Package engines has the type of a database that dblock keeps locks in: what New of package
// postgres, mysql or sqlite returns, and what dblock.New and package reaper take.
package engines

import (
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
)

// Engine is a database with transactions of type TX (pgx.Tx, *sql.Tx), in which dblock keeps locks.
// The type is opaque: it has no fields, and no methods that an application could call. The zero
// value has no database.
type Engine[TX any] struct{ engine[TX] }

// engine is a struct, from which dblock.New can infer TX. From an interface Go infers by methods
// alone.
type engine[TX any] = inside.Inside[driver.Engine[TX]]

// Packages of this module open an Engine by inside.Of.
var _ = inside.Of(Engine[any]{}.engine)
