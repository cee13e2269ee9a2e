package dbtest

import "testing"

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
