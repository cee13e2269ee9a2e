package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/driver"
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
