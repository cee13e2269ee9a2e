package optimistic_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/optimistic"
)

func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	tx := new(sql.Tx) // a statement in it would panic
	for want, err := range map[string]error{
		"the name is empty":         optimistic.Bump(t.Context(), tx, "", 1),
		"256 bytes":                 optimistic.Bump(t.Context(), tx, strings.Repeat("ä", 128), 1),
		"version -1":                optimistic.Bump(t.Context(), tx, "a", -1),
		"the transaction is nil":    optimistic.Bump(t.Context(), (*sql.Tx)(nil), "a", 1),
		"a *sql.DB is neither":      optimistic.Bump(t.Context(), new(sql.DB), "a", 1),
		"the context is nil":        optimistic.Bump(nil, tx, "a", 1), //lint:ignore SA1012 that is the test
		`read the version of "\xff`: require.ErrOf(optimistic.Read(t.Context(), tx, "\xff")),
		"contains NUL":              require.ErrOf(optimistic.Read(t.Context(), tx, "\x00")),
		"a string is neither":       require.ErrOf(optimistic.Read(t.Context(), "tx", "a")),
	} {
		if !errors.Is(err, optimistic.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
