package postgres

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by a list of known claims that reads all names for a few of them, or that looks up by name
// as many as there are pages: a page takes less time than a name.
func TestKnownClaimsAreFoundByNameOrAmongAllNames(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Hour)
	s.session("b", time.Hour)
	const rows = 600 // two on each page
	s.exec(fmt.Sprintf(`INSERT INTO dblock_locks (name, token, acquired_at, metadata)
		SELECT 'p' || i, 0, 0, (SELECT string_agg(md5(i::text || j), '') FROM generate_series(1, 50) j)
		  FROM generate_series(1, %d) i`, rows))
	claim := func(name string, share bool) driver.Claim {
		r := request("a", "of "+name)
		r.Name = name
		if share {
			r = units(r, 1, 2)
		}
		return driver.Claim{Session: "a", Name: name, Attempt: r.Attempt, Token: s.take(r).Token}
	}
	known := []driver.Claim{claim("held", false), claim("shared", true)}
	unknown := claim("unknown", false)
	part := s.number("SELECT (ctid::text::point)[0]::bigint / 128 FROM dblock_locks WHERE name = 'unknown'")
	list := func(known []driver.Claim, step int64) []driver.Claim {
		t.Helper()
		claims, err := claims(t.Context(), s.db, "a", known, step, driver.All)
		require.NoError(t, err)
		slices.SortFunc(claims, func(a, b driver.Claim) int { return cmp.Compare(a.Name, b.Name) })
		return claims
	}
	all := append(slices.Clone(known), unknown)
	equal(t, list(nil, everything), all, "all claims")
	equal(t, list(known, part), all, "the step that reads the unknown one")
	equal(t, list(known, part+1), known, "another step")
	long := known
	for i := range rows {
		long = append(long, driver.Claim{Session: "a", Name: fmt.Sprint("p", i)}) // released meanwhile
	}
	equal(t, list(long[:100], part+1), known, "fewer names than pages")
	equal(t, list(long, part+1), all, "more names than pages")
}

func equal(t *testing.T, got, want []driver.Claim, about string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %+v, want %+v", about, got, want)
	}
}
