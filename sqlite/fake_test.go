package sqlite

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

// fake is a driver without a database. It knows whether its one connection is inside a transaction,
// and answers every query with the row 0.
type fake struct {
	fakedb.Server
	inside  bool
	refused string // the statement that fails
	refusal error
	ran     []string
}

// onFake is an engine on a fake, which has found its tables.
func onFake(t *testing.T) (*fake, *engine) {
	t.Helper()
	f := &fake{refusal: errRefused}
	f.Exec = f.exec
	f.Query = func(*fakedb.Session, string) ([]sqldriver.Value, error) { return []sqldriver.Value{int64(0)}, nil }
	pool := sql.OpenDB(&f.Server)
	t.Cleanup(func() { _ = pool.Close() })
	e := inside.Of(New(pool)).Backend.(*engine)
	e.db.file.Store(&file{})
	e.db.fit.Store(true)
	return f, e
}

var errRefused = errors.New("refused")

func (f *fake) exec(_ *fakedb.Session, text string) error {
	f.ran = append(f.ran, text)
	begins := strings.HasPrefix(text, "BEGIN")
	switch ends := text == "COMMIT" || text == "ROLLBACK"; {
	case text == f.refused:
		return f.refusal
	case begins && f.inside, ends && !f.inside:
		return errors.New(text + " in the wrong place")
	case begins || ends:
		f.inside = begins
	}
	return nil
}
