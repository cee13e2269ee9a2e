package check

import (
	"context"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/dblock-go/dblock"
	dblockprom "github.com/dblock-go/dblock/prom"
)

// exposed is what a server finds at a collector: the labels of every metric, by its name, with the
// values that they have. Buckets have le besides.
type exposed map[string]map[string][]string

// scraped are the labels that a server adds.
var scraped = []string{"job", "instance"}

func expose(t *testing.T) exposed {
	t.Helper()
	c := dblockprom.New("orders")
	c.Watch(database{})
	if err := c.Inspect(database{}, dblockprom.Inspection{}); err != nil {
		t.Fatal(err)
	}
	o := c.Observer()
	o.AcquireEnd(t.Context(), dblock.Attempt{Wait: true}, dblock.AcquireResult{})
	o.HoldEnd(dblock.HoldResult{})
	o.Heartbeat(time.Millisecond, nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := exposed{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			names := []string{f.GetName()}
			if m.GetHistogram() != nil {
				names = []string{f.GetName() + "_bucket", f.GetName() + "_sum", f.GetName() + "_count"}
			}
			for i, name := range names {
				if all[name] == nil {
					all[name] = map[string][]string{}
				}
				for _, l := range m.GetLabel() {
					all[name][l.GetName()] = append(all[name][l.GetName()], l.GetValue())
				}
				if i == 0 && len(names) > 1 {
					all[name]["le"] = nil
				}
			}
		}
	}
	return all
}

// database is a client, and the names that it finds.
type database struct{}

func (database) Stats() dblock.Stats {
	return dblock.Stats{Session: "s", AliveUntil: time.Now().Add(time.Minute)}
}
func (database) TTL() time.Duration { return time.Minute }

func (database) List(context.Context, dblock.Filter) iter.Seq2[dblock.Info, error] {
	return func(func(dblock.Info, error) bool) {}
}

// check fails unless an expression is one, and reads metrics that are exposed, by labels that they
// have, with values that they have. It notes what is read.
func (e exposed) check(t *testing.T, text string, read map[string]bool) {
	t.Helper()
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return
	}
	there := map[string]bool{} // the labels of all metrics in it
	for _, l := range scraped {
		there[l] = true
	}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		selector, is := node.(*parser.VectorSelector)
		if !is {
			return nil
		}
		read[selector.Name] = true
		metric, exists := e[selector.Name]
		if !exists {
			t.Errorf("%s: there is no metric %q", text, selector.Name)
			return nil
		}
		for label := range metric {
			there[label] = true
		}
		for _, m := range selector.LabelMatchers {
			switch values, has := metric[m.Name]; {
			case m.Name == model.MetricNameLabel:
			case !has:
				t.Errorf("%s: %s has no label %q", text, selector.Name, m.Name)
			case m.Type == labels.MatchEqual && !slices.Contains(values, m.Value):
				t.Errorf("%s: %s has no %s=%q: it has %q", text, selector.Name, m.Name, m.Value, values)
			}
		}
		return nil
	})
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		var by []string
		switch node := node.(type) {
		case *parser.AggregateExpr:
			by = node.Grouping
		case *parser.BinaryExpr:
			if node.VectorMatching != nil {
				by = node.VectorMatching.MatchingLabels
			}
		}
		for _, label := range by {
			if !there[label] {
				t.Errorf("%s: no metric in it has the label %q", text, label)
			}
		}
		return nil
	})
}
