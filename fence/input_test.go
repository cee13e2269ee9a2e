package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/fence"
)

// untouched has a transaction's methods, as pgx has them, and fails the test when one is called.
type untouched struct {
	pgx.Tx
	t *testing.T
}

func (u untouched) Exec(context.Context, string, ...any) (tag struct{}, err error) {
	u.t.Error("something was sent")
	return
}

func (u untouched) QueryRow(context.Context, string, ...any) pgx.Row {
	u.t.Error("something was sent")
	return nil
}

func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	tx := untouched{t: t}
	for name, err := range map[string]error{
		"the resource is empty":    fence.Check(t.Context(), tx, "", 7),
		"256 bytes":                fence.Check(t.Context(), tx, strings.Repeat("ä", 128), 7),
		"UTF-8":                    fence.Check(t.Context(), tx, "\xff", 7),
		"NUL":                      fence.Check(t.Context(), tx, "a\x00", 7),
		"token 0":                  fence.Check(t.Context(), tx, "a", 0),
		"token -1":                 fence.Check(t.Context(), tx, "a", -1),
		"the context is nil":       fence.Check(nil, tx, "a", 7), //lint:ignore SA1012 that is the test
		"the transaction is nil":   fence.Check(t.Context(), nil, "a", 7),
		"transaction is nil":       fence.Check(t.Context(), (*sql.Tx)(nil), "a", 7),
		"a *sql.DB is neither":     fence.Check(t.Context(), new(sql.DB), "a", 7),
		"a *sql.Conn is neither":   fence.Check(t.Context(), new(sql.Conn), "a", 7),
		"a *pgxpool.Pool is":       fence.Check(t.Context(), new(pgxpool.Pool), "a", 7),
		"a *pgx.Conn is neither":   fence.Check(t.Context(), new(pgx.Conn), "a", 7),
		"a string is neither":      fence.Check(t.Context(), "tx", "a", 7),
		"a fence_test.half is nei": fence.Check(t.Context(), half{}, "a", 7),
	} {
		if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("want %q: %v", name, err)
		}
	}
}

// half ends like a transaction, and has no statements like one.
type half struct{}

func (half) Commit(context.Context) error            { return nil }
func (half) Rollback(context.Context) error          { return nil }
func (half) Exec(context.Context, string) error      { return nil }
func (half) QueryRow(context.Context, string, []any) {}
