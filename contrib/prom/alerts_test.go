package dblockprom_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dblock-go/dblock"
	dblockprom "github.com/dblock-go/dblock/contrib/prom"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/observe"
)

// exposed is what a server finds at a collector: the labels of every metric, by its name, with the
// values that they have. Buckets have le besides.
type exposed map[string]map[string][]string

// scraped are the labels that a server adds.
var scraped = []string{"job", "instance"}

func expose(t *testing.T) exposed {
	t.Helper()
	c := dblockprom.New("orders")
	c.Watch(empty{})
	require.NoError(t, c.Inspect(empty{}, dblockprom.Inspection{}))
	o := c.Observer()
	o.AcquireEnd(t.Context(), observe.Attempt{Wait: true}, observe.AcquireResult{})
	o.HoldEnd(observe.HoldResult{})
	o.RunEnd(observe.RunResult{})
	o.SlotsLeftOut(observe.LeftOut{})
	o.Heartbeat(time.Millisecond, nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	require.NoError(t, err)
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

// empty is a client that holds nothing, and the names that it finds: none.
type empty struct{}

func (empty) Stats() dblock.Stats {
	return dblock.Stats{Session: "s", AliveUntil: time.Now().Add(time.Minute)}
}
func (empty) TTL() time.Duration { return time.Minute }

func (empty) List(context.Context, inspect.Filter) iter.Seq2[inspect.Info, error] {
	return func(func(inspect.Info, error) bool) {}
}

// What an expression says of metrics and labels. Whether it is one, promtool says.
var (
	selector = regexp.MustCompile(`\b(dblock_\w+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
)

// check fails unless an expression reads metrics that are exposed, by labels that they have, with
// values that they have. It notes what is read.
func (e exposed) check(t *testing.T, expression string, read map[string]bool) {
	t.Helper()
	there := slices.Clone(scraped) // the labels of all metrics in it
	selectors := selector.FindAllStringSubmatch(expression, -1)
	if len(selectors) == 0 {
		t.Errorf("%s: it reads no metric", expression)
	}
	for _, s := range selectors {
		name := s[1]
		read[name] = true
		metric, exists := e[name]
		if !exists {
			t.Errorf("%s: there is no metric %q", expression, name)
			continue
		}
		for label := range metric {
			there = append(there, label)
		}
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			switch values, has := metric[m[1]]; {
			case !has:
				t.Errorf("%s: %s has no label %q", expression, name, m[1])
			case m[2] == "=" && !slices.Contains(values, m[3]):
				t.Errorf("%s: %s has no %s=%q: it has %q", expression, name, m[1], m[3], values)
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expression, -1) {
		for label := range strings.SplitSeq(g[1], ",") {
			if label = strings.TrimSpace(label); label != "" && !slices.Contains(there, label) {
				t.Errorf("%s: no metric in it has the label %q", expression, label)
			}
		}
	}
}

// alert finds the names and expressions of alerts.yml, whose expressions stand behind expr: or
// below it, indented.
var alert = regexp.MustCompile(`(?m)^ +- alert: (\w+)\n +expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)`)

func alerts(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	expressions := map[string]string{}
	for _, m := range alert.FindAllStringSubmatch(string(text), -1) {
		expressions[m[1]] = m[2] + m[3]
	}
	if all := strings.Count(string(text), "alert:"); len(expressions) != all || all == 0 {
		t.Fatalf("read %d of %d alerts", len(expressions), all)
	}
	return expressions
}

func TestAlertsReadMetricsThatExist(t *testing.T) {
	metrics := expose(t)
	for _, expression := range alerts(t) {
		metrics.check(t, expression, map[string]bool{})
	}
}

// When alerts fire stands in alerts_test.yml, which promtool runs.
func TestEveryAlertHasATestInWhichItFires(t *testing.T) {
	text, err := os.ReadFile("alerts_test.yml")
	require.NoError(t, err)
	for name := range alerts(t) {
		if !strings.Contains(string(text), "alertname: "+name+"\n") {
			t.Errorf("no test in which %s fires", name)
		}
	}
}

// TestPromtool needs promtool, of Debian's package prometheus. DBLOCK_TEST_REQUIRE=promtool makes
// it fail without.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv("DBLOCK_TEST_REQUIRE"), ","), "promtool") {
			t.Fatal(err)
		}
		t.Skipf("alert rules and the expressions of the dashboard need promtool, of Debian's package prometheus: %v",
			err)
	}
	run := func(arguments ...string) {
		t.Helper()
		if said, err := exec.CommandContext(t.Context(), promtool, arguments...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, said)
		}
	}
	run("check", "rules", "alerts.yml")
	run("test", "rules", "alerts_test.yml")

	// Each expression of the dashboard as a rule that records it: promtool parses rules.
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	type group struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}
	rules := group{Name: "dashboard"}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			rules.Rules = append(rules.Rules, rule{fmt.Sprintf("panel:%d:%s", p.ID, target.RefID),
				variables.Replace(target.Expr)})
		}
	}
	text, err := json.Marshal(map[string][]group{"groups": {rules}}) // JSON is YAML
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	run("check", "rules", "--lint=none", file)
}
