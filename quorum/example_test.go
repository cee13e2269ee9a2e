package quorum_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/quorum"
	"github.com/dblock-go/dblock/sqlite"
)

// Three databases, of which any one may be away.
func Example() {
	const ttl = time.Second // short, because new databases are not asked before two TTLs have passed
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "dblock-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	var nodes []quorum.Node
	for _, name := range []string{"berlin", "paris", "rome"} {
		db, err := sql.Open("sqlite", filepath.Join(folder, name))
		if err != nil {
			log.Fatal(err)
		}
		defer db.Close()
		if err := migrate.Up(ctx, db, migrate.SQLite); err != nil {
			log.Fatal(err)
		}
		client, err := dblock.New(sqlite.New(db), dblock.WithTTL(ttl))
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close(ctx)
		nodes = append(nodes, quorum.On(client).Named(name))
	}
	if err := quorum.Init(ctx, nodes...); err != nil { // once, by the script that makes the databases
		log.Fatal(err)
	}
	client, err := quorum.New(nodes, quorum.WithQuarantine(2*ttl), quorum.WithPatience(5*ttl))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	err = client.Do(ctx, "invoice/42", func(ctx context.Context, l *quorum.Lock) error {
		fmt.Println("nobody else has", l.Name())
		return nil
	})
	fmt.Println(err)
	// Output:
	// nobody else has invoice/42
	// <nil>
}
