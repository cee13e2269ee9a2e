package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/optimistic"
)

// Two read the same version; the second to write finds that its work was in vain, and repeats it.
func Example_retry() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "dblock-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	db, err := sql.Open("sqlite", filepath.Join(folder, "app.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := migrate.Up(ctx, db, migrate.SQLite, migrate.Versions); err != nil {
		log.Fatal(err)
	}

	tries := 0
	change := func(ctx context.Context, meanwhile func()) error {
		tries++
		read, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		version, err := optimistic.Read(ctx, read, "invoice/42") // before the data
		if err := errors.Join(err, read.Rollback()); err != nil {
			return err
		}
		meanwhile()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := optimistic.Bump(ctx, tx, "invoice/42", version); err != nil {
			return err // ErrConflict: another has written
		}
		return tx.Commit()
	}
	err = optimistic.Retry(ctx, func(ctx context.Context) error {
		return change(ctx, func() {
			if tries == 1 { // somebody else is faster, once
				if err := change(ctx, func() {}); err != nil {
					log.Fatal(err)
				}
			}
		})
	})
	fmt.Println(tries, "tries:", err)
	// Output: 3 tries: <nil>
}
