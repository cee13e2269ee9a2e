package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// exhausted reports whether the server refused to prepare a statement because its clients together
// have reached max_prepared_stmt_count. Nothing was run, and a transaction continues.
func exhausted(err error) bool { return mysqlserver.Number(err) == mysqlserver.TooManyPrepared }

// literal returns a statement with its parameters as literals: numbers, and texts as hexadecimal
// digits, which every sql_mode and character set reads alike. A text has the character set that it
// would have as a parameter. If a parameter has another type, literal returns the statement
// unchanged.
func (p *prepared) literal(text string, args []any) (string, []any) {
	parts := strings.Split(p.placed(text), "?") // every "?" in our statements is a parameter
	if len(parts) != len(args)+1 {
		return text, args
	}
	var b strings.Builder
	for i, arg := range args {
		b.WriteString(parts[i])
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return text, args
		}
		switch v := value.(type) {
		case nil:
			b.WriteString("NULL")
		case int64:
			b.WriteString(strconv.FormatInt(v, 10))
		case bool:
			b.WriteString(strconv.Itoa(int(number01(v))))
		case string:
			b.WriteString(p.introducer(v) + "X'" + hex.EncodeToString([]byte(v)) + "'")
		default:
			return text, args
		}
	}
	return b.String() + parts[len(args)], nil
}

// introducer names the character set of a text. Bytes that are no valid text have none.
func (p *prepared) introducer(text string) string {
	charset, _ := p.charset.Load().(string)
	switch {
	case !utf8.ValidString(text):
		return ""
	case charset == "":
		return "_utf8mb4 "
	}
	return "_" + charset + " "
}

// examine calls the function examine, and remembers the character set of the connections. It looks
// for the tables only then: a connection that it refuses may not find them.
func (e *engine) examine(ctx context.Context, on *sql.Conn) error {
	charset, err := examine(ctx, on, e.server().facts())
	if err == nil {
		err = e.server().examine(ctx, on, e.prepared.tables.In().String())
	}
	if err != nil {
		return err
	}
	e.prepared.charset.Store(charset)
	return e.meet(ctx, on)
}
