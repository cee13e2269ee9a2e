package pgserver

import (
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
)

// foreign are servers that speak PostgreSQL's protocol and cannot keep these locks, by a word of
// what version() says.
var foreign = []struct{ word, name, why string }{
	{"CockroachDB", "CockroachDB", "it has no LISTEN, and its session-level advisory locks are granted to everybody"},
	{"-YB-", "YugabyteDB", "it has no LISTEN, and its row locks and advisory locks are not PostgreSQL's"},
	{"Redshift", "Amazon Redshift", "it has no row locks and no LISTEN, and does not enforce unique keys"},
}

// Refuse returns ErrConfig for a server on which locks would not exclude, or not work, by what its
// version() says.
func Refuse(version string) error {
	for _, f := range foreign {
		if strings.Contains(version, f.word) {
			return driver.Fail(driver.ErrConfig, fmt.Errorf(
				"the server is %s, on which these locks are not known to exclude: %s. Keep the locks in PostgreSQL, MySQL, MariaDB or SQLite, and check tokens here (package fence)", f.name, f.why))
		}
	}
	return nil
}
