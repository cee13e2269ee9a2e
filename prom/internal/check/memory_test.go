package check

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// memory is what a server has scraped, a sample a minute from 1970 on.
type memory []promql.Series

// load reads series in the words of promtool's tests, one a line, and tells how many minutes they
// last.
func load(t *testing.T, text string) (m memory, minutes int) {
	t.Helper()
	for line := range strings.Lines(text) {
		metric, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		series := promql.Series{Metric: metric}
		for minute, v := range values {
			if !v.Omitted {
				series.Floats = append(series.Floats, promql.FPoint{T: at(minute).UnixMilli(), F: v.Value})
			}
		}
		m, minutes = append(m, series), max(minutes, len(values))
	}
	return m, minutes
}

func at(minute int) time.Time { return time.Unix(0, 0).Add(time.Duration(minute) * time.Minute) }

// query is what an expression is at a minute.
func (m memory) query(t *testing.T, expression string, minute int) promql.Vector {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	query, err := engine.NewInstantQuery(t.Context(), m, nil, expression, at(minute))
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	vector, err := result.Vector()
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return slices.Clone(vector)
}

// Querier is of storage.Queryable.
func (m memory) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, by ...*labels.Matcher) storage.SeriesSet {
		var found seriesSet
		for _, s := range m {
			if !slices.ContainsFunc(by, func(l *labels.Matcher) bool { return !l.Matches(s.Metric.Get(l.Name)) }) {
				found.left = append(found.left, s)
			}
		}
		return &found
	}}, nil
}

// seriesSet is of storage.SeriesSet.
type seriesSet struct{ next, left memory }

func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.next, s.left = s.left[:1], s.left[1:]
	return true
}
func (s *seriesSet) At() storage.Series              { return promql.NewStorageSeries(s.next[0]) }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }
