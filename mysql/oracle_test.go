package mysql_test

import (
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/oracle"
)

// Whatever is asked, by the short ways and by the general way, the engine leaves the rows that
// package protocol leaves in memory.
func TestTheEngineDoesWhatTheProtocolDoes(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.attending(t)
		for seed := range uint64(2) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) { oracle.Compare(t, oracle.WakesOnly{Backend: a}, seed, 100) })
		}
	})
}
