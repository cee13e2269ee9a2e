package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dblock-go/dblock/internal/driver"
)

// settings reads the settings that decide whether statements arrive intact and stay committed, and
// the clock.
const settings = "SELECT @@autocommit, @@completion_type, @@sql_mode, @@sql_select_limit, @@character_set_client, " +
	"@@character_set_connection, COALESCE(@@character_set_results, 'binary'), @@timestamp"

// unset resets, on a connection of the engine, settings that cut lists short, a clock that stands
// still, and a switch with which MySQL refuses an EXISTS that it cannot turn into a join (error
// 3973).
func unset(ctx context.Context, conn *sql.Conn, set string) error {
	if switches, err := variable(ctx, conn, "optimizer_switch", ""); err != nil {
		return err
	} else if strings.Contains(switches, "subquery_to_derived=on") {
		set += ", optimizer_switch = 'subquery_to_derived=off'"
	}
	_, err := conn.ExecContext(ctx, set)
	return err
}

// querier is a pool, or a connection of one.
type querier interface {
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}

// examine refuses a connection with settings under which no lock can be kept. The settings are
// those of the pool: from its DSN, from init_connect, or from the server. Settings that the
// application changes on a single borrowed connection are not seen here. examine returns the
// character set.
func examine(ctx context.Context, on *sql.Conn, of *facts) (charset string, err error) {
	var autocommit bool
	var completion, mode, client, connection, results string
	var limit uint64
	var now, later string // of two statements, in microseconds
	if err := on.QueryRowContext(ctx, settings).Scan(&autocommit, &completion, &mode, &limit, &client,
		&connection, &results, &now); err != nil {
		return "", err
	}
	if err := on.QueryRowContext(ctx, "SELECT @@timestamp").Scan(&later); err != nil {
		return "", err
	}
	refuse := func(format string, args ...any) (string, error) { return "", refused(format, args...) }
	switch {
	case !autocommit:
		return refuse("autocommit off, so that no statement of dblock would commit: leave it on in the DSN")
	case completion != "NO_CHAIN":
		return refuse("completion_type = %s: a COMMIT begins another transaction or ends the connection, and what "+
			"comes next is not committed: leave it at NO_CHAIN", completion)
	case limit < math.MaxInt32 && (limit > 0 || !of.endless):
		return refuse("sql_select_limit = %d, as --safe-updates sets it: the server would cut lists short without a "+
			"word: leave it at its default", limit)
	case now == later:
		return refuse("timestamp = %s, with which the clock stands still, and a lease expires at once or never: "+
			"leave it at its default", now)
	case strings.Contains(mode, "EMPTY_STRING_IS_NULL"):
		return refuse("EMPTY_STRING_IS_NULL in sql_mode, and dblock writes empty strings: take it out, in the DSN say")
	case client != connection && client != "binary":
		return refuse("character_set_client = %s and character_set_connection = %s: the server would convert names "+
			"of locks, and one lock become two: set them by charset in the DSN or SET NAMES, both to one", client,
			connection)
	case client != results && results != "binary":
		return refuse("character_set_client = %s and character_set_results = %s: owners would not be recognised: "+
			"set them by charset in the DSN or SET NAMES, both to one", client, results)
	}
	// TiDB has no such variable. SHOW fails with some character sets that are refused above.
	if logged, err := variable(ctx, on, "sql_log_bin", ""); err != nil {
		return "", err
	} else if logged == "OFF" {
		return refuse("sql_log_bin off, so that no other node of a cluster, and no replica, would have the locks: " +
			"leave it on")
	}
	return client, nil
}

// refused is the error of a connection with settings under which no lock can be kept.
func refused(format string, args ...any) error {
	return driver.Fail(driver.ErrConfig, fmt.Errorf("the pool's connections have "+format, args...))
}

// plainJSON writes a JSON text in ASCII, which every character set has, so that metadata does not
// depend on the DSN.
func plainJSON(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return text
	}
	var b strings.Builder
	for _, r := range text { // other characters occur in strings only
		switch high, low := utf16.EncodeRune(r); {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}
