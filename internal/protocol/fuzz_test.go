package protocol_test

import (
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/protocol"
)

// wishes are the requests that a fuzzed world makes, before they have an attempt.
var wishes = [][]func(*protocol.Request){
	{}, {reads}, {members(2)}, {members(5)}, {permits(1, 3)}, {permits(2, 3)}, {permits(3, 7)}, {leased}, {rests},
	{reads, leased}, {permits(1, 2), leased}, {rests, leased},
}

// FuzzTransitions takes a step for each byte of its input, of those that the world can take then.
// A new request is in question at each step: its session and its wish follow from the last byte.
func FuzzTransitions(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Add([]byte{0, 0, 0, 3, 7, 1, 0, 200, 9, 13, 2, 77, 41, 0, 5})
	for seed := range 64 { // pseudo-random, and always the same
		steps, x := make([]byte, 200), uint32(seed)*2654435761+1
		for i := range steps {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
			steps[i] = byte(x >> 11)
		}
		f.Add(steps)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		w, last := newWorld(), 0
		var path []string
		for i, b := range bytes {
			wish := wishes[(last>>1)%len(wishes)]
			r := request(fmt.Sprintf("%c%d", "ab"[last%2], i), wish...)
			if !w.alive(r.Session) {
				r = request(fmt.Sprintf("d%d", i), wish...)
			}
			steps := w.steps([]protocol.Request{r})
			chosen := steps[int(b)%len(steps)]
			path = append(path, chosen.says)
			after, _, err := w.take(chosen)
			if err != nil {
				t.Fatalf("%v\n%q\nbefore %+v\n%+v\n%+v\nafter %+v\n%+v\n%+v", err, path, w.row, w.places, w.shares,
					after.row, after.places, after.shares)
			}
			w, last = after, int(b)+i
		}
	})
}
