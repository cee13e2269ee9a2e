package txtest

import "testing"

// charsets are parameters of MySQL DSNs with which the server converts what a connection sends.
var charsets = []string{
	"character_set_connection=latin1",
	"character_set_connection=swe7",
	"character_set_connection=ucs2",
	"character_set_connection=utf16",
	"character_set_connection=utf32",
	"charset=utf8mb4&character_set_client=latin1",
	"charset=utf8mb4&character_set_client=swe7",
	"charset=utf8mb4&character_set_connection=utf8mb3",
	"charset=latin1&character_set_connection=utf8mb4",
	"charset=utf8",
	"charset=binary",
	"charset=gbk",
}

// EachCharset runs f for each, with and without parameters that the driver writes into the text.
func EachCharset(t *testing.T, f func(t *testing.T, params string)) {
	t.Helper()
	for _, params := range charsets {
		for _, interpolate := range []string{"", "&interpolateParams=true"} {
			if interpolate != "" && params == "charset=gbk" {
				continue // the driver refuses that
			}
			t.Run(params+interpolate, func(t *testing.T) { f(t, params+interpolate) })
		}
	}
}
