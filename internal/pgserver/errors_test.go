package pgserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

func server(state, text string) error {
	return fmt.Errorf("at work: %w", &pgconn.PgError{Severity: "FATAL", Code: state, Message: text})
}

// fields is an error as bun's pgdriver has it.
type fields map[byte]string

func (f *fields) Error() string       { return (*f)['M'] }
func (f *fields) Field(k byte) string { return (*f)[k] }

func TestInterpret(t *testing.T) {
	for _, c := range []struct {
		err, want error
		says      string
	}{
		{server("25006", "cannot execute INSERT in a read-only transaction"), driver.ErrReadOnly,
			"the database is read-only: a failover may be in progress; connect to the primary " +
				"(target_session_attrs=read-write): at work: FATAL: cannot execute INSERT"},
		{server("08P01", "server login has been failing, cached error: connect failed (server_login_retry)"),
			driver.ErrUnavailable,
			"PgBouncer cannot reach the server, and repeats its last failure for server_login_retry seconds: at " +
				"work: FATAL: server login has been failing"},
		{server("08P01", "query_wait_timeout"), driver.ErrUnavailable,
			"cannot serve now: at work: FATAL: query_wait_timeout"},
		{server("57P01", "terminating connection due to administrator command"), driver.ErrUnavailable,
			"terminating connection"},
		{server("42P01", `relation "dblock_locks" does not exist`), driver.ErrSchema, "dblock_locks"},
		{server("08P01", "transaction blocks not allowed in statement pooling mode"), driver.ErrConfig,
			"let it pool sessions or transactions"},
		{fmt.Errorf("at work: %w", &fields{'C': "40001", 'M': "could not serialize"}), driver.ErrRetry, "serialize"},
		{&fields{'C': "55P03", 'M': "could not obtain lock"}, driver.ErrBusy, "obtain"},
		{server("28P01", "password authentication failed"), driver.ErrDenied, "password authentication failed"},
		{server("22P05", "has no equivalent"), driver.ErrConfig,
			"a character that the encoding of the database lacks: at work: FATAL: has no"},
		{server("42501", "permission denied for table dblock_locks"), driver.ErrConfig,
			"the role lacks a right of docs/privileges/postgres-app.sql (to only look: " +
				"postgres-people.sql): at work: FATAL: permission denied for table"},
		{server("42501", `new row violates row-level security policy for table "dblock_locks"`), driver.ErrConfig,
			"need no row level security"},
		{errors.New("conn busy"), driver.ErrConfig,
			"rows of the transaction are still open: close them first: conn busy"},
		{server("40001", "could not serialize access"), driver.ErrRetry, "serialize"},
		{server("55P03", "could not obtain lock"), driver.ErrBusy, "obtain"},
		{fmt.Errorf("in a guard: %w", sql.ErrTxDone), driver.ErrTxDone, "in a guard"},
		{errors.New("unexpected EOF"), driver.ErrUnavailable, "unexpected EOF"},
		{driver.Fail(driver.ErrReadOnly, errors.New("a standby")), driver.ErrReadOnly, "a standby"},
		{context.Canceled, context.Canceled, "canceled"},
	} {
		got := Interpret(c.err)
		if !errors.Is(got, c.want) || !errors.Is(got, c.err) || !strings.Contains(got.Error(), c.says) {
			t.Errorf("%v: %v, want %v, and %q", c.err, got, c.want, c.says)
		}
		if again := Interpret(fmt.Errorf("once more: %w", got)); again.Error() != "once more: "+got.Error() {
			t.Errorf("said twice: %v", again)
		}
	}
	ofNoKind := server("42601", "syntax error")
	if got := Interpret(ofNoKind); !errors.Is(got, ofNoKind) || got.Error() != ofNoKind.Error() {
		t.Error(got)
	}
}

func TestWhatTheServerRefusesIsNotInDoubt(t *testing.T) {
	for state, doubt := range map[string]bool{
		"22P05": false, "42501": false, "23505": false, "23514": false, "28P01": false, "40001": false, "53300": false,
		"54000": false, "55P03": false, "57014": false,
		"08006": true, "08P01": true, "57P01": true, "57P02": true, "XX000": true, "58000": true,
	} {
		err := Interpret(server(state, "text"))
		if driver.InDoubt(err) != doubt {
			t.Errorf("%s is in doubt: %v, want %v", state, !doubt, doubt)
		}
		assert.Equal(t, Interpret(err), err, "interpreted twice")
	}
	for _, unknown := range []error{errors.New("unexpected EOF"), context.Canceled,
		fmt.Errorf("within: %w", context.DeadlineExceeded)} {
		if !driver.InDoubt(Interpret(unknown)) {
			t.Errorf("%v is not in doubt", unknown)
		}
	}
}

func TestAnOutageOfAllAddressesStandsOnOneLine(t *testing.T) {
	_, err := pgconn.Connect(t.Context(), "postgres://u@127.0.0.1:1,127.0.0.1:2/app?sslmode=disable")
	if err == nil || !strings.Contains(err.Error(), "\n") {
		t.Fatalf("pgx says %q: this test is of a text of several lines", err)
	}
	got := Interpret(err)
	if !errors.Is(got, driver.ErrUnavailable) || !errors.Is(got, err) {
		t.Error(got)
	}
	text := got.Error()
	if strings.ContainsAny(text, "\n\t") || !strings.Contains(text, "database=app`: 127.0.0.1:1 (127.0.0.1): ") ||
		!strings.Contains(text, "refused; 127.0.0.1:2 (127.0.0.1): ") {
		t.Errorf("it says %q", text)
	}
}
