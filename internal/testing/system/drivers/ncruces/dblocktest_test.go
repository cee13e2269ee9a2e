package ncruces

import (
	"testing"

	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestDblocktestWorksWithTheDriver(t *testing.T) {
	d := dblocktest.SQLite(t)
	lock, err := d.Client.Lock(t.Context(), "n")
	require.NoError(t, err)
	tx, err := d.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	assert.NoError(t, d.Client.Guard(t.Context(), tx, lock))
	assert.NoError(t, tx.Commit())
	var journal string
	if err := d.DB.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&journal); err != nil || journal != "wal" {
		t.Error(journal, err)
	}
}
