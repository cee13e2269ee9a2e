package election_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"sync"
	"time"

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

// The process beside the database leads while it lives. Otherwise another one leads, and makes way
// after its present piece of work.
func ExampleWeight() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, done := openClient(dblock.WithTTL(time.Second)) // a leader looks at the queue a few times in each TTL
	defer done()
	elections := election.New(client)
	var campaigns sync.WaitGroup
	campaign := func(zone string, weight int, work func(ctx context.Context, t *election.Term) error) {
		campaigns.Go(func() {
			if err := elections.Campaign(ctx, "indexer", work, election.Weight(weight)); err != nil {
				log.Fatal(zone, err)
			}
		})
	}
	campaign("far", 1, func(ctx context.Context, t *election.Term) error {
		fmt.Println("far leads")
		campaign("near", 2, func(ctx context.Context, t *election.Term) error {
			fmt.Println("near leads")
			cancel() // enough for an example
			return nil
		})
		for {
			select {
			case <-ctx.Done(): // the lock was lost, or the campaign ends
				return nil
			case <-t.Preferred():
				fmt.Println("far makes way")
				return nil
			case <-time.After(10 * time.Millisecond): // a piece of work
			}
		}
	})
	campaigns.Wait()
	// Output:
	// far leads
	// far makes way
	// near leads
}

// A process consumes the partitions that it has. Other processes that call Shares have the others.
func ExampleElections_Shares() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, done := openClient()
	defer done()
	var begun sync.WaitGroup
	begun.Add(4)
	go func() {
		begun.Wait()
		cancel() // enough for an example
	}()
	consume := func(ctx context.Context, shard int, t *election.Term) error {
		fmt.Println("partition", shard, "with a token:", t.Token() > 0)
		begun.Done()
		<-ctx.Done() // consumes until the partition moves to another process, or the program ends
		return nil
	}
	if err := election.New(client).Shares(ctx, "queue", 4, consume); err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// partition 0 with a token: true
	// partition 1 with a token: true
	// partition 2 with a token: true
	// partition 3 with a token: true
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
