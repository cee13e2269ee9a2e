package postgres

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// readable returns ErrConfig where the server converts what a connection reads: names and owners
// would not be recognised. To SQL_ASCII and from it nothing is converted; a client that has it
// reads the bytes of the database, which are UTF-8 in one of UTF8 only. "": some pooler does not
// tell.
func readable(client, server string) error {
	if client == "" || client == "UTF8" || server == "SQL_ASCII" || client == "SQL_ASCII" && server == "UTF8" {
		return nil
	}
	return driver.Fail(driver.ErrConfig, fmt.Errorf(
		"a connection has client_encoding=%s, in a database of encoding %s, and texts would arrive as others: set "+
			"client_encoding=UTF8 in the DSN, or for the role",
		client, server))
}

// readableConn is readable of a connection of pgx. The server tells each change of the two settings
// without being asked.
func readableConn(conn *pgx.Conn) error {
	told := conn.PgConn().ParameterStatus
	return readable(told("client_encoding"), told("server_encoding"))
}

// examine has a statement fail unless the connection is readable. Its last two columns are
// client_encoding and server_encoding.
func (s statement) examine(dest ...any) statement {
	var client, server string
	dest = append(dest, &client, &server)
	s.row = func(row scanner) error {
		if err := row.Scan(dest...); err != nil {
			return err
		}
		return readable(client, server)
	}
	return s
}

var parameters = regexp.MustCompile(`\$[0-9]+`)

// carried has texts that are not ASCII travel in hexadecimal digits: the server takes the bytes of
// a parameter for those of client_encoding, and under another one a name is another lock.
func (s statement) carried() statement {
	args, changed := slices.Clone(s.args), map[string]bool{}
	for i, arg := range args {
		if text, is := arg.(string); is && strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) {
			args[i], changed["$"+strconv.Itoa(i+1)] = transaction.Hex(text), true
		}
	}
	if len(changed) == 0 {
		return s
	}
	s.args = args
	s.sql = parameters.ReplaceAllStringFunc(s.sql, func(p string) string {
		if !changed[p] {
			return p
		}
		return "convert_from(decode(" + p + ", 'hex'), 'UTF8')"
	})
	return s
}
