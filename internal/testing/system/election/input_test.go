package election

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

func TestWhatCannotWorkIsSaidAtOnce(t *testing.T) {
	one(t, func(w world) {
		nothing := func(context.Context, *election.Term) error { return nil }
		p, away, standby, closed := w.party(), w.party(), w.party(), w.party()
		away.goAway(dblock.ErrUnavailable)
		standby.goAway(dblock.ErrReadOnly)
		require.NoError(w, closed.client.Close(w.Context()))
		bare, err := dblock.New(sqlite.New(dbtest.Empty(w, dbtest.KindSQLite).SQL(w)))
		require.NoError(w, err)
		defer bare.Close(w.Context())
		observed := func(p party, name string) error {
			for _, err := range p.Observe(w.Context(), name) {
				return err
			}
			return nil
		}
		noTables := party{Elections: election.New(bare)}
		for i, c := range []struct {
			op        string
			err, want error
		}{
			{"campaign", p.Campaign(nil, name, nothing), dblock.ErrInvalidOption}, //lint:ignore SA1012 that is the test
			{"campaign", p.Campaign(w.Context(), name, nil), dblock.ErrInvalidOption},
			{"campaign", p.Campaign(w.Context(), name, nothing, nil), dblock.ErrInvalidOption},
			{"campaign", p.Campaign(w.Context(), "", nothing), dblock.ErrInvalidName},
			{"campaign", p.Campaign(w.Context(), name, nothing,
				election.Metadata(map[string]string{"a": strings.Repeat("x", 4096)})), dblock.ErrInvalidOption},
			{"campaign", away.Campaign(w.Context(), name, nothing), dblock.ErrUnavailable},
			{"campaign", standby.Campaign(w.Context(), name, nothing), dblock.ErrReadOnly},
			{"campaign", closed.Campaign(w.Context(), name, nothing), dblock.ErrClosed},
			{"campaign", noTables.Campaign(w.Context(), name, nothing), dblock.ErrSchema},
			{"observe", observed(p, ""), dblock.ErrInvalidName},
			{"observe", observed(away, name), dblock.ErrUnavailable},
			{"observe", observed(closed, name), dblock.ErrClosed},
			{"observe", observed(noTables, name), dblock.ErrSchema},
		} {
			if of, ok := c.err.(*dblock.LockError); !ok || of.Op != c.op || !errors.Is(of.Err, c.want) {
				w.Errorf("%d: %v, not %v of %s", i, c.err, c.want, c.op)
			}
		}
		over, cancel := context.WithCancel(w.Context())
		cancel()
		assert.NoError(w, p.Campaign(over, name, nothing))
	})
}
