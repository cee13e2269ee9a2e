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

// readable returns ErrConfig if the server converts the texts of a connection: names and owners
// would not be recognised. To and from SQL_ASCII nothing is converted. A client with SQL_ASCII
// reads the bytes of the database, which are UTF-8 only in a database of UTF8. "": some poolers do
// not tell the encoding.
func readable(client, server string) error {
	if client == "" || client == "UTF8" || server == "SQL_ASCII" || client == "SQL_ASCII" && server == "UTF8" {
		return nil
	}
	return driver.Fail(driver.ErrConfig, fmt.Errorf(
		"a connection has client_encoding=%s, in a database of encoding %s, and texts would arrive as others: set "+
			"client_encoding=UTF8 in the DSN, or for the role",
		client, server))
}

// readableConn is readable for a connection of pgx. The server reports each change of the two
// settings by itself.
func readableConn(conn *pgx.Conn) error {
	told := conn.PgConn().ParameterStatus
	return readable(told("client_encoding"), told("server_encoding"))
}

// examine makes a statement fail unless the connection is readable. Its last two columns are
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

// parameters matches those of a statement, and names in quotes, which may look like one.
var parameters = regexp.MustCompile(`"[^"]*"|\$[0-9]+`)

// carried sends texts that are not ASCII as hexadecimal digits. The server reads the bytes of a
// parameter in client_encoding, and in another encoding a name would be another lock.
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
