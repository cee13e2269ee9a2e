//go:build unix

package fault

import (
	"slices"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// agree compares what candidates believed, what the database has recorded, and what observers saw.
func (b *ballot) agree() {
	b.Helper()
	b.exclusive(b.all...)
	recorded := b.recorded()
	for i := 1; i < len(recorded); i++ {
		if recorded[i] <= recorded[i-1] {
			b.Errorf("token %d is recorded after %d", recorded[i], recorded[i-1])
		}
	}
	labels := map[int64]string{}
	for _, p := range b.all {
		for _, h := range p.holds() {
			if !slices.Contains(recorded, h.token) {
				b.Errorf("%s led with token %d, which is not recorded", p.label, h.token)
			}
			labels[h.token] = p.label
		}
		if e, ok := p.find(1, evRefused); ok {
			b.Errorf("%s: the campaign ended: %s", p.label, e.Err)
		}
	}
	for _, p := range b.observers {
		last := recorded[len(recorded)-1]
		eventually(b, p.label+" is up to date", func() bool {
			saw := p.all()
			return saw[len(saw)-1].Token == last
		})
		var saw []int64
		for _, e := range p.all() {
			if e.What != evSaw || e.Token == 0 {
				continue
			}
			saw = append(saw, e.Token)
			if label := labels[e.Token]; label != "" && e.Name != label {
				b.Errorf("%s saw %s lead with token %d, which was %s's", p.label, e.Name, e.Token, label)
			}
		}
		if !slices.Equal(saw, recorded) {
			b.Errorf("%s saw %d leaders, recorded are %d:\n%v\n%v", p.label, len(saw), len(recorded), saw, recorded)
		}
	}
}

// recorded is the history, in the order in which it was written.
func (b *ballot) recorded() (tokens []int64) {
	b.Helper()
	rows, err := b.sql.QueryContext(b.Context(),
		"SELECT token FROM dblock_events WHERE name = 'office' AND kind = 'elected' ORDER BY id")
	require.NoError(b, err)
	defer rows.Close()
	for rows.Next() {
		var token int64
		require.NoError(b, rows.Scan(&token))
		if len(tokens) == 0 || token != tokens[len(tokens)-1] { // a statement was repeated after its answer was lost
			tokens = append(tokens, token)
		}
	}
	require.NoError(b, rows.Err())
	return tokens
}
