//go:build !unix

package sqlite

import "os"

// links and device show nothing here.

func links(os.FileInfo) uint64  { return 1 }
func device(os.FileInfo) uint64 { return 0 }
