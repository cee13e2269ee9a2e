package election_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"sync"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/internal/testing/example"
)

// openClient makes a client on tables in memory; an application has a database.
func openClient(options ...dblock.Option) (client *dblock.Client[*sql.Tx], done func()) {
	t := &example.T{}
	return dblocktest.New[*sql.Tx](t, options...).Client, t.End
}

// One process leads, and every process can hear which one that is.
func ExampleElections_Campaign() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, done := openClient()
	defer done()
	elections := election.New(client)
	var campaign sync.WaitGroup
	campaign.Go(func() {
		err := elections.Campaign(ctx, "indexer", func(ctx context.Context, t *election.Term) error {
			<-ctx.Done() // leads until the context ends: with the lock, or with the campaign
			return nil
		}, election.Metadata(map[string]string{"address": "10.0.0.7:80"}))
		if err != nil {
			log.Fatal(err)
		}
	})
	for leader, err := range elections.Observe(ctx, "indexer") {
		if err != nil {
			log.Fatal(err)
		}
		if leader.Token != 0 { // 0: nobody leads yet
			fmt.Println("the leader is at", leader.Metadata["address"])
			break
		}
	}
	cancel()
	campaign.Wait()
	// Output: the leader is at 10.0.0.7:80
}

// A process that has crashed and was started again leads at once, without waiting for its TTL.
func ExampleOwner() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, done := openClient()
	defer done()
	pod := "indexer-0" // stays the same when the pod is replaced
	err := election.New(client).Campaign(ctx, "indexer", func(ctx context.Context, t *election.Term) error {
		fmt.Println(pod, "leads")
		cancel() // enough for an example
		return nil
	}, election.Owner(pod, "indexer"))
	if err != nil {
		log.Fatal(err)
	}
	// Output: indexer-0 leads
}
