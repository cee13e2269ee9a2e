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
const settings = "SELECT @@autocommit, @@sql_log_bin, @@completion_type, @@sql_mode, @@sql_select_limit," +
	" @@character_set_client, @@character_set_connection, COALESCE(@@character_set_results, 'binary'), @@timestamp"

// unset resets, on a connection of the engine, settings that cut lists short, a clock that stands
// still, and a switch with which MySQL refuses an EXISTS that it cannot turn into a join (error
// 3973).
func unset(ctx context.Context, conn *sql.Conn, d *dialect) error {
	set := d.spell("SET SESSION sql_select_limit = 18446744073709551615, timestamp = DEFAULT", true)
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
func examine(ctx context.Context, on *sql.Conn, d *dialect) (charset string, err error) {
	var autocommit, logged bool
	var completion, mode, client, connection, results string
	var limit uint64
	var now, later string // of two statements, in microseconds
	if err := on.QueryRowContext(ctx, d.spell(settings, true)).Scan(&autocommit, &logged, &completion, &mode, &limit,
		&client, &connection, &results, &now); err != nil {
		return "", err
	}
	if err := on.QueryRowContext(ctx, "SELECT @@timestamp").Scan(&later); err != nil {
		return "", err
	}
	refuse := func(format string, args ...any) (string, error) {
		return "", driver.Fail(driver.ErrConfig, fmt.Errorf("the pool's connections have "+format, args...))
	}
	switch {
	case !autocommit:
		return refuse("autocommit off, so that no statement of dblock would commit: leave it on in the DSN")
	case !logged:
		return refuse("sql_log_bin off, so that no other node of a cluster, and no replica, would have the locks: " +
			"leave it on")
	case completion != "NO_CHAIN":
		return refuse("completion_type = %s: a COMMIT begins another transaction or ends the connection, and what "+
			"comes next is not committed: leave it at NO_CHAIN", completion)
	case limit < math.MaxInt32:
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
	values, err := valuesOf(ctx, on, d.settings)
	if err != nil {
		return "", err
	}
	for i, s := range d.settings {
		if !strings.EqualFold(values[i], s.want) {
			return refuse("%s = %q, with which %s: leave it at %q", strings.TrimPrefix(s.variable, "@@"), values[i],
				s.so, s.want)
		}
	}
	return client, nil
}

// valuesOf reads settings in one statement.
func valuesOf(ctx context.Context, on *sql.Conn, settings []setting) ([]string, error) {
	if len(settings) == 0 {
		return nil, nil
	}
	values, into, names := make([]string, len(settings)), make([]any, len(settings)), make([]string, len(settings))
	for i, s := range settings {
		into[i], names[i] = &values[i], s.variable
	}
	return values, on.QueryRowContext(ctx, "SELECT "+strings.Join(names, ", ")).Scan(into...)
}

// setting is a variable of a connection without which no lock can be kept.
type setting struct {
	variable, want string
	so             string // the consequence of any other value
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
