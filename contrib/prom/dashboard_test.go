package dblockprom_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// dashboard is what a test needs to know of one.
type dashboard struct {
	Panels []struct {
		ID         int
		Type       string
		Title      string
		Datasource struct{ UID string }
		GridPos    struct{ X, Y, W, H int }
		Targets    []struct{ RefID, Expr string }
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

// What Grafana puts in the place of its variables.
var variables = strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$client", "orders|mail")

func TestTheDashboardShowsEveryMetric(t *testing.T) {
	metrics, read := expose(t), map[string]bool{}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			metrics.check(t, variables.Replace(target.Expr), read)
			if !strings.Contains(target.Expr, `client=~"$client"`) {
				t.Errorf("%s: %s is not of the clients that were chosen", p.Title, target.Expr)
			}
		}
	}
	for metric := range metrics {
		if !read[metric] && !strings.HasSuffix(metric, "_sum") && !(strings.HasSuffix(metric, "_count") &&
			read[strings.TrimSuffix(metric, "_count")+"_bucket"]) {
			t.Errorf("no panel shows %s", metric)
		}
	}
}

func TestTheDashboardIsOne(t *testing.T) {
	d := readDashboard(t)
	ids := map[int]bool{}
	for i, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: a second panel %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("%s: a %s with %d targets", p.Title, p.Type, len(p.Targets))
		}
		if p.Type != "row" && p.Datasource.UID != "${datasource}" {
			t.Errorf("%s: its data source is %q", p.Title, p.Datasource.UID)
		}
		for _, q := range d.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s covers %s", p.Title, q.Title)
			}
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s is wider than the page", p.Title)
		}
	}
	metrics := expose(t)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		var query struct{ Query string }
		require.NoError(t, json.Unmarshal(v.Query, &query))
		metric, label, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(query.Query, "label_values("), ")"), ", ")
		if _, has := metrics[metric][label]; !has {
			t.Errorf("the variable %s: %s", v.Name, query.Query)
		}
	}
}
