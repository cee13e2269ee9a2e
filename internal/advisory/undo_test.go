package advisory

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// hit is a transaction. Requests to cancel hit its first statements.
type hit struct {
	pgx.Tx
	left int
	sent []string
}

func (h *hit) Exec(_ context.Context, sql string, _ ...any) (pgconn.CommandTag, error) {
	what := "unlock"
	if strings.Contains(sql, "pg_sleep") {
		what = "absorb"
	}
	h.sent = append(h.sent, what)
	if h.left--; h.left >= 0 {
		return pgconn.CommandTag{}, &pgconn.PgError{Code: pgserver.QueryCanceled}
	}
	return pgconn.CommandTag{}, nil
}

// Broken by going on while requests to cancel are on their way, and by an unlock that is not
// repeated when one hits it.
func TestRequestsToCancelThatWereNotSeenAreAbsorbedBeforeTheCallerGoesOn(t *testing.T) {
	for _, c := range []struct {
		cancels, arrive int
		want            []string
	}{
		{0, 0, []string{"unlock"}},
		{2, 2, []string{"absorb", "absorb", "unlock"}},
		{2, 0, []string{"absorb", "unlock"}}, // they came to nothing
		{1, 2, []string{"absorb", "unlock", "unlock"}},
	} {
		tx := &hit{left: c.arrive}
		assert.NoError(t, (txLock{tx: tx, key: keysOf("n")}).undo(t.Context(), c.cancels, "pg_advisory_unlock"))
		if !slices.Equal(tx.sent, c.want) {
			t.Errorf("%d requests, %d of which arrive: %v, want %v", c.cancels, c.arrive, tx.sent, c.want)
		}
	}
}
