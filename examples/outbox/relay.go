package main

import (
	"context"
	"database/sql"
	"log"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/examples/internal/database"
)

const (
	batchSize = 5
	pause     = 50 * time.Millisecond // before an empty outbox is read again
)

// message is a row of the outbox. Token is that of the term that published it: a consumer that has
// seen a higher one can refuse the message.
type message struct {
	ID       int64
	Customer int
	Body     string
	Token    int64
}

// relay publishes the messages of the outbox, one process at a time.
type relay struct {
	db      database.Database
	client  *dblock.Client[*sql.Tx]
	publish func(ctx context.Context, m message) error
}

// run stands for election until ctx ends.
func (r relay) run(ctx context.Context) error {
	return election.New(r.client).Campaign(ctx, "outbox", r.lead)
}

// lead publishes batches until the term ends. A batch that fails is rolled back and sent again.
func (r relay) lead(ctx context.Context, t *election.Term) error {
	for {
		n, err := r.batch(ctx, t.Lock())
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			log.Printf("outbox: the batch is sent again: %v", err)
		}
		if n == batchSize && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// batch publishes the oldest messages and marks them as sent, in one transaction. Guard comes
// first: until the transaction ends no other relay can lead, so batches never interleave. A crash
// before the commit leaves the whole batch to the next relay.
func (r relay) batch(ctx context.Context, lock *dblock.Lock) (n int, err error) {
	tx, err := r.db.SQL.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() // after the commit it does nothing
	if err := r.client.Guard(ctx, tx, lock); err != nil {
		return 0, err
	}
	messages, err := r.oldest(ctx, tx)
	if err != nil {
		return 0, err
	}
	sent := r.db.Bind("UPDATE " + outboxTable + " SET sent = TRUE WHERE id = ?")
	for _, m := range messages {
		m.Token = lock.Token()
		if err := r.publish(ctx, m); err != nil {
			return 0, err
		}
		if _, err := tx.ExecContext(ctx, sent, m.ID); err != nil {
			return 0, err
		}
	}
	return len(messages), tx.Commit()
}

// oldest reads the messages of the next batch.
func (r relay) oldest(ctx context.Context, tx *sql.Tx) (messages []message, err error) {
	rows, err := tx.QueryContext(ctx, r.db.Bind("SELECT id, customer, body FROM "+outboxTable+
		" WHERE NOT sent ORDER BY id LIMIT ?"), batchSize)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var m message
		if err := rows.Scan(&m.ID, &m.Customer, &m.Body); err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, rows.Err()
}
