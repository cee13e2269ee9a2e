package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/fence"
	"github.com/dblock-go/dblock/migrate"
)

// The data is in another database than the lock. The holder of token 8 has written there; what the
// holder of token 7 sends afterwards is refused.
func ExampleCheck() {
	ctx := context.Background()
	elsewhere, err := sql.Open("pgx", "postgres://app@elsewhere/data")
	if err != nil {
		log.Fatal(err)
	}
	defer elsewhere.Close()
	if err := migrate.Up(ctx, elsewhere, migrate.Postgres, migrate.Fences); err != nil {
		log.Fatal(err)
	}

	write := func(token int64) error { // token: that of the lock
		tx, err := elsewhere.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fence.Check(ctx, tx, "invoice/42", token); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(write(8))                            // <nil>
	fmt.Println(errors.Is(write(7), fence.ErrStale)) // true
}
