package driver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// What a client finds while the tables are being migrated, or dropped, need not be what they will
// be in a moment.
func TestTablesOfAnOlderVersionMayBeOnTheirWay(t *testing.T) {
	const build = 4
	for schema, passing := range map[driver.Schema]bool{
		{}:                          true,
		{Version: 3, UsableFrom: 3}: true,
		{Version: 3, UsableFrom: 2}: true,
		{Version: 5, UsableFrom: 5}: false,
	} {
		err := schema.CheckBy(build)
		if !errors.Is(err, driver.ErrSchema) || strings.Contains(err.Error(), "a migration is under way") != passing {
			t.Errorf("%+v: %v", schema, err)
		}
		for _, version := range []int{build, schema.Version} {
			if version > 0 && !strings.Contains(err.Error(), fmt.Sprintf("version %d", version)) {
				t.Errorf("%v: want version %d", err, version)
			}
		}
	}
}

func TestABuildWorksWithLaterTablesThatServeIt(t *testing.T) {
	const build = 4
	for _, schema := range []driver.Schema{{Version: 4, UsableFrom: 4}, {Version: 4, UsableFrom: 1},
		{Version: 9, UsableFrom: 4}} {
		if err := schema.CheckBy(build); err != nil {
			t.Errorf("%+v: %v", schema, err)
		}
	}
	now := driver.Schema{Version: driver.SchemaVersion, UsableFrom: driver.SchemaVersion}
	assert.NoError(t, now.Check())
}
