package driver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/driver"
)

// What a client finds while the tables are being migrated, or dropped, need not be what they will
// be in a moment.
func TestTablesOfAnOlderVersionMayBeOnTheirWay(t *testing.T) {
	for schema, passing := range map[driver.Schema]bool{
		{}:                          true,
		{Version: 3, UsableFrom: 3}: true,
		{Version: driver.SchemaVersion - 1, UsableFrom: 5}:                        true,
		{Version: driver.SchemaVersion + 1, UsableFrom: driver.SchemaVersion + 1}: false,
	} {
		err := schema.Check()
		if !errors.Is(err, driver.ErrSchema) || strings.Contains(err.Error(), "a migration is under way") != passing {
			t.Errorf("%+v: %v", schema, err)
		}
		if says := fmt.Sprintf("at version %d", schema.Version); schema.Version > 0 && !strings.Contains(err.Error(), says) {
			t.Errorf("%v: want %s", err, says)
		}
	}
}
