// Package foreign detects servers that speak the protocol of PostgreSQL or MySQL and have other
// locks.
package foreign

import (
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
)

// servers lists them by a word of their version, in lower case.
var servers = []struct{ word, name, why string }{
	{"cockroachdb", "CockroachDB",
		"it has no LISTEN, and before version 26 its advisory locks are granted to everybody"},
	{"-yb-", "YugabyteDB", "its LISTEN is in early access, and its row locks are not PostgreSQL's"},
	{"redshift", "Amazon Redshift", "it has no row locks and no LISTEN, and does not enforce unique keys"},
	{"tidb", "TiDB", "its row locks are not InnoDB's, and IS_USED_LOCK does not tell the connection that has a lock"},
	{"oceanbase", "OceanBase", "its row locks are not InnoDB's"},
	{"vitess", "Vitess (PlanetScale is made of it)",
		"its proxy has connections of its own, and names of connections and of databases that MySQL does not know"},
}

// Refuse returns ErrConfig if the version is that of a server on which locks may not exclude.
func Refuse(version string) error {
	version = strings.ToLower(version)
	for _, s := range servers {
		if strings.Contains(version, s.word) {
			return driver.Fail(driver.ErrConfig, fmt.Errorf(
				"the server is %s, on which these locks are not known to exclude: %s. Keep the locks in PostgreSQL, "+
					"MySQL, MariaDB or SQLite, and check tokens here (package fence)", s.name, s.why))
		}
	}
	return nil
}
