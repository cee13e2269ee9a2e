package dbtest

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestADSNIsNamedForItsKind(t *testing.T) {
	for kind, variable := range map[string]string{
		KindPostgres: "DBLOCK_TEST_POSTGRES_DSN", KindMySQL: "DBLOCK_TEST_MYSQL_DSN",
		KindMariaDB: "DBLOCK_TEST_MARIADB_DSN", KindTiDB: "DBLOCK_TEST_TIDB_DSN", KindVitess: "DBLOCK_TEST_VITESS_DSN",
	} {
		assert.Equal(t, dsnVariable(kind), variable)
	}
}

func TestWhatIsRequired(t *testing.T) {
	for _, c := range []struct {
		only, require, dsn string
		want               bool
	}{
		{},
		{dsn: "a", want: true},
		{require: "mysql,mariadb", want: true},
		{require: "mysql"},
		{only: "mysql,mariadb", want: true},
		{only: "mysql"},
		{only: "mysql", require: "mariadb", dsn: "a"}, // left out on purpose
	} {
		t.Setenv("DBLOCK_TEST_ONLY", c.only)
		t.Setenv("DBLOCK_TEST_REQUIRE", c.require)
		t.Setenv("DBLOCK_TEST_MARIADB_DSN", c.dsn)
		if got := required(KindMariaDB); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
