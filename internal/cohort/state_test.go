package cohort

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/diagram"
)

// The diagram in the package comment has every transition, and no other.
func TestEveryTransitionIsInTheDiagram(t *testing.T) { diagram.Compare(t, transitions, state.String) }
