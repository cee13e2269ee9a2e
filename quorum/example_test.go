package quorum_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/example"
	"github.com/dblock-go/dblock/quorum"
)

// Three databases, of which any one may be away.
func Example() {
	const ttl = time.Second // short, because new databases are not asked before two TTLs have passed
	ctx := context.Background()
	t := &example.T{}
	defer t.End()
	var nodes []quorum.Node
	for _, name := range []string{"berlin", "paris", "rome"} { // in memory; an application has databases
		client := dblocktest.New[*sql.Tx](t, dblock.WithTTL(ttl)).Client
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
