package mysqlserver

import (
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
)

// foreign are servers that speak MySQL's protocol and cannot keep these locks, by a word of their
// version.
var foreign = []struct{ word, name, why string }{
	{"TiDB", "TiDB", "its row locks are not InnoDB's, and IS_USED_LOCK does not tell the connection that has a lock"},
	{"OceanBase", "OceanBase", "its row locks are not InnoDB's"},
	{"Vitess", "Vitess (PlanetScale is made of it)", "transactions, named locks and KILL go through its proxy, to whatever server that chooses"},
}

// Refuse returns ErrConfig for a server on which locks would not exclude, or not work, by its
// version.
func Refuse(version string) error {
	for _, f := range foreign {
		if strings.Contains(strings.ToLower(version), strings.ToLower(f.word)) {
			return driver.Fail(driver.ErrConfig, fmt.Errorf(
				"the server is %s, on which these locks are not known to exclude: %s. Keep the locks in PostgreSQL, MySQL, MariaDB or SQLite, and check tokens here (package fence)", f.name, f.why))
		}
	}
	return nil
}
