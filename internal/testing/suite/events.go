package suite

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var events = inPlaces(own{
	{"Events are read from the oldest and from the newest, between two IDs and since a time", someEvents},
	{"Events goes through more than a page in either direction", manyEvents},
})

// someEvents: the second was written while the clock was ahead, the last after it was set back.
func someEvents(t *testing.T, e *env) {
	c := e.client(t)
	var records []protocol.Event
	for i := range 7 {
		records = append(records, protocol.Event{Name: []string{"x", "y"}[i%2], Kind: []string{"one", "other"}[i/2%2],
			Token: int64(i)})
	}
	require.NoError(t, e.app(t, 2).Backend.Record(brief(t), records[1:]))
	var ids [7]int64 // by token, as they are counted here
	for _, event := range all(t, c.Events(t.Context(), inspect.EventFilter{})) {
		ids[event.Token] = event.ID
	}
	const second = 1_000_000
	for i, at := range []int64{0, 1, 50, 3, 4, 5, 2} {
		e.exec(t, "UPDATE dblock_events SET at = ? WHERE token = ?", at*second, i)
	}
	at := func(seconds float64) time.Time { return time.UnixMicro(int64(seconds * second)) }
	for _, test := range []struct {
		filter inspect.EventFilter
		want   []int64
	}{
		{inspect.EventFilter{After: ids[1], Before: ids[6], Name: "y", Newest: true}, []int64{5, 3}},
		{inspect.EventFilter{Kinds: []string{"one"}, Newest: true, Limit: 2}, []int64{5, 4}},
		{inspect.EventFilter{Since: at(3)}, []int64{2, 3, 4, 5}},
		{inspect.EventFilter{Since: at(3.000001)}, []int64{2, 4, 5}},
		{inspect.EventFilter{Since: at(3), After: ids[3], Name: "x"}, []int64{4}},
		{inspect.EventFilter{Since: at(3), Before: ids[5], Newest: true}, []int64{4, 3, 2}},
		{inspect.EventFilter{Since: at(1)}, []int64{1, 2, 3, 4, 5, 6}},
		{inspect.EventFilter{Since: at(51)}, nil},
	} {
		events := c.Events(t.Context(), test.filter)
		for range 2 { // an iteration begins where its filter says, each time
			var got []int64
			for _, event := range all(t, events) {
				got = append(got, event.Token)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%+v: %v, want %v", test.filter, got, test.want)
			}
		}
	}
	var refused error
	for _, err := range c.Events(t.Context(), inspect.EventFilter{Before: -1}) {
		refused = err
	}
	is(t, refused, dblock.ErrInvalidOption)
}

func manyEvents(t *testing.T, e *env) {
	c := e.client(t)
	var records []protocol.Event
	for i := range 2100 { // two pages of each name, and more
		records = append(records, protocol.Event{Name: fmt.Sprint("n", i%2), Kind: "k", Token: int64(i)})
	}
	require.NoError(t, e.app(t, 2).Backend.Record(t.Context(), records))
	e.exec(t, "UPDATE dblock_events SET at = 1 WHERE token < 700")
	for _, test := range []struct {
		filter           inspect.EventFilter
		first, step, len int
	}{
		{inspect.EventFilter{}, 0, 1, 2100},
		{inspect.EventFilter{Name: "n1", Newest: true}, 2099, -2, 1050},
		{inspect.EventFilter{Since: time.UnixMicro(2)}, 700, 1, 1400},
		{inspect.EventFilter{Since: time.UnixMicro(2), Newest: true, Name: "n0"}, 2098, -2, 700},
	} {
		events := all(t, c.Events(t.Context(), test.filter))
		for i, event := range events {
			if want := int64(test.first + i*test.step); event.Token != want {
				t.Fatalf("%+v: event %d is %d, want %d", test.filter, i, event.Token, want)
			}
		}
		assert.Equal(t, len(events), test.len, test.filter, "events")
	}
}
