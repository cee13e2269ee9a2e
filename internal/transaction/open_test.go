package transaction

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
)

// MySQLError is an error of a server, as the driver has it.
type MySQLError struct{ Number uint16 }

func (e *MySQLError) Error() string { return "a server's" }

// scripted notes the statements that it answers. refuse has the errors of those that it refuses.
type scripted struct {
	open   int64
	cut    bool // MariaDB answers that there is no row
	refuse map[string]error
	sent   []string
}

func (s *scripted) Exec(_ context.Context, text string, _ ...any) error {
	s.sent = append(s.sent, text)
	return s.refuse[text]
}

func (s *scripted) Row(_ context.Context, text string, _ []any, into ...any) (bool, error) {
	s.sent = append(s.sent, text)
	*into[0].(*int64) = s.open
	return !s.cut, s.refuse[text]
}

func refuses(text string, err error) scripted { return scripted{refuse: map[string]error{text: err}} }

const set, gone, look = "SAVEPOINT dblock_open", "RELEASE SAVEPOINT dblock_open", "SELECT @@in_transaction <> 0"

// Broken by another order, by an error that counts as a proof, and by a missing answer that does.
func TestATransactionOfMySQLProvesThatItIsOpen(t *testing.T) {
	none, deadlock := &MySQLError{1305}, &MySQLError{1213}
	for what, c := range map[string]struct {
		on       scripted
		variable string
		want     error
		sent     []string
	}{
		"a savepoint that is there":      {scripted{}, "", nil, []string{set, gone}},
		"a savepoint that is gone":       {refuses(gone, none), "", ErrEnded, []string{set, gone}},
		"a savepoint that is refused":    {refuses(set, deadlock), "", deadlock, []string{set}},
		"a release that is refused":      {refuses(gone, deadlock), "", deadlock, []string{set, gone}},
		"a variable that is set":         {scripted{open: 1}, OpenInMariaDB, nil, []string{look}},
		"a variable that is not set":     {scripted{}, OpenInMariaDB, ErrEnded, []string{look}},
		"a variable without an answer":   {scripted{cut: true}, OpenInMariaDB, ErrUnproven, []string{look}},
		"a variable that cannot be read": {refuses(look, deadlock), OpenInMariaDB, deadlock, []string{look}},
	} {
		err := OpenMySQL(t.Context(), &c.on, c.variable)
		if (err == nil) != (c.want == nil) || !errors.Is(err, c.want) || !slices.Equal(c.on.sent, c.sent) {
			t.Errorf("%s: %v after %q, want %v after %q", what, err, c.on.sent, c.want, c.sent)
		}
	}
}

func TestAnEndedTransactionIsNoRaceThatWasLost(t *testing.T) {
	if !errors.Is(ErrEnded, driver.ErrTxDone) || !errors.Is(ErrEnded, sql.ErrTxDone) || Retryable(ErrEnded) {
		t.Error(ErrEnded)
	}
}
