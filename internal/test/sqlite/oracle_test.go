package sqlite_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/oracle"
)

func TestTheEngineDoesWhatTheProtocolDoes(t *testing.T) {
	for _, journal := range journals {
		f := newFixtureIn(t, journal)
		for seed := range uint64(soaked(2, 20)) {
			oracle.Compare(t, f, seed, 400)
		}
	}
}
