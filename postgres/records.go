package postgres

import (
	"context"
	"math"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

func (e *engine) Record(ctx context.Context, events []protocol.Event) error {
	if len(events) == 0 {
		return nil
	}
	err := e.db.exec(ctx, query(postgresdb.AddEvent, list(events)))
	for try := 0; try < aheads && pgserver.State(err) == pgserver.UniqueViolation; try++ {
		err = e.db.exec(ctx, query(postgresdb.AddEventAhead, list(events)))
	}
	return pgserver.Interpret(err)
}

// aheads bounds the attempts to write events with ids that do not come from the sequence.
const aheads = 8

func (e *engine) Events(ctx context.Context, f driver.EventFilter, limit int) ([]protocol.Event, error) {
	var row postgresdb.DblockEvent
	var events []protocol.Event
	err := e.db.exec(ctx, eventsOf(f, limit).into(&row, func() {
		events = append(events, protocol.Event{
			ID: row.ID, At: time.UnixMicro(row.At), Name: row.Name, Kind: row.Kind, Token: row.Token,
			Session: row.SessionID,
			Host:    row.Host, Thread: row.Thread, Detail: row.Detail, Metadata: row.Metadata,
		})
	}))
	return events, pgserver.Interpret(err)
}

// eventsOf returns the query for the events of a filter.
func eventsOf(f driver.EventFilter, limit int) statement {
	kinds := list(f.Kinds)
	if f.Name == "" {
		text := postgresdb.Events
		if f.Newest {
			text = postgresdb.NewestEvents
		}
		return query(text, postgresdb.EventsParams{After: f.After, Below: f.Below(), Kinds: kinds, Most: int32(limit)})
	}
	text := postgresdb.EventsOf
	if f.Newest {
		text = postgresdb.NewestEventsOf
	}
	return query(text, postgresdb.EventsOfParams{Name: f.Name, After: f.After, Below: f.Below(), Kinds: kinds,
		Most: int32(limit)})
}

func (e *engine) EventsSince(ctx context.Context, since time.Time) (int64, error) {
	var lowest int64
	var there bool
	err := e.db.exec(ctx, query(postgresdb.EventsSince, since.UnixMicro()).found(&lowest, &there))
	if err == nil && lowest == 0 {
		return math.MaxInt64, nil
	}
	return lowest - 1, pgserver.Interpret(err)
}

func (e *engine) PurgeRecords(ctx context.Context, keep time.Duration, limit int) (int, error) {
	var deleted int
	var id int64
	count := func() { deleted++ }
	for _, purge := range []statement{
		query(postgresdb.PurgeEvents, postgresdb.PurgeEventsParams{Keep: keep.Microseconds(),
			Most: int32(limit)}).into(&id, count),
		query(postgresdb.PurgeRuns, postgresdb.PurgeRunsParams{Keep: keep.Microseconds(), Most: int32(limit)}).into(&id,
			count),
	} {
		if err := e.db.exec(ctx, purge); err != nil {
			return deleted, pgserver.Interpret(err)
		}
	}
	return deleted, nil
}

func (e *engine) Incarnation(ctx context.Context, renew bool, floor int64) (driver.Incarnation, error) {
	var begun postgresdb.BeginIncarnationRow
	var renewed postgresdb.RenewIncarnationRow
	var is postgresdb.IncarnationRow
	var fresh, there bool
	statements := []statement{query(postgresdb.BeginIncarnation, max(floor, 0)).found(&begun, &fresh)}
	if renew {
		statements = append(statements, query(postgresdb.RenewIncarnation, floor).found(&renewed, &there))
	}
	statements = append(statements, query(postgresdb.Incarnation, struct{}{}).found(&is, &there))
	var highest int64
	if floor < 0 {
		statements = append(statements, query(postgresdb.HighestToken, struct{}{}).found(&highest, &there))
	}
	if err := e.transact(ctx, statements...); err != nil {
		return driver.Incarnation{}, pgserver.Interpret(err)
	}
	if floor < 0 {
		is.TokenFloor = highest
	}
	return driver.Incarnation{Age: microseconds(is.Age), Floor: is.TokenFloor, Fresh: fresh}, nil
}
