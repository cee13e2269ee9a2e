package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/internal/driver"
)

// version is that of a released build, which the linker sets (-X main.version=v1.2.3).
var version string

// build identifies a build of this command.
type build struct {
	Version string
	Go      string
	Tables  int // the version of the tables that it makes, and the lowest that it works with
}

// showVersion needs no database.
func showVersion(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this command, and of the tables that it needs",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b := build{Version: version, Go: runtime.Version(), Tables: driver.SchemaVersion}
			if info, ok := debug.ReadBuildInfo(); ok && b.Version == "" {
				b.Version = info.Main.Version // of go install
			}
			if o.json {
				return writeJSON(c.OutOrStdout(), b)
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "dblock %s, %s, tables of version %d\n", b.Version, b.Go, b.Tables)
			return err
		},
	}
}
