package optimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/optimistic"
)

// Two read the same version; the second to write finds that its work was in vain, and repeats it.
func ExampleRetry() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://app@localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := migrate.Up(ctx, db, migrate.Postgres, migrate.Versions); err != nil {
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
	fmt.Println(tries, "tries:", err) // 3 tries: <nil>
}
