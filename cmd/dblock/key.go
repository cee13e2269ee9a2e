package main

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
)

// keys are the keys of a name in the server's own locks.
type keys struct {
	Name     string
	Advisory int64  // pg_advisory_lock
	ClassID  uint32 // of pg_locks
	ObjID    uint32
	Named    string // GET_LOCK
}

var called = listing[keys]{
	header: table.Row{"name", "pg_advisory_lock", "pg_locks classid", "objid", "GET_LOCK"},
	row: func(k keys) table.Row {
		return table.Row{k.Name, fmt.Sprint(k.Advisory), k.ClassID, k.ObjID, k.Named}
	},
}

// key needs no database.
func key(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "key NAME...",
		Short: "Print the keys of names as advisory locks (PostgreSQL) and named locks (MySQL)",
		Long: `key prints the key of a name in pg_locks (postgres.Advisory), and that in metadata_lock_info or
performance_schema.metadata_locks (mysql.Named). It needs no database.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			for _, name := range names {
				if err := checkName(name); err != nil {
					return usageError{err}
				}
			}
			_, _, err := called.print(c.OutOrStdout(), o.json, func(yield func(keys, error) bool) {
				for _, name := range names {
					n := postgres.AdvisoryKey(name)
					if !yield(keys{name, n, uint32(uint64(n) >> 32), uint32(uint64(n)), mysql.NamedKey(name)}, nil) {
						return
					}
				}
			}, 0)
			return err
		},
	}
}
