package migrate_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/dblock-go/dblock/migrate"
)

// The application numbers its migrations. dblock's take the next number, and the application's own
// next file the one behind it.
func ExampleCopy() {
	dir, err := os.MkdirTemp("", "migrations")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, file := range []string{"00001_init.sql", "00002_users.sql"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("-- +goose Up\n"), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	for range 2 { // the second call finds nothing to copy
		files, err := migrate.Copy(dir, migrate.Postgres, time.Now(), migrate.Locks, migrate.Fences)
		if err != nil {
			log.Fatal(err)
		}
		for _, file := range files {
			fmt.Println(filepath.Base(file))
		}
	}
	// Output:
	// 00003_00001_dblock.sql
	// 00004_00001_dblock_fences.sql
}
