package check

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/template"
)

func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile("../../alerts.yml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
	for _, err := range errs {
		t.Fatal(err)
	}
	rules := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			rules[rule.Alert] = rule
		}
	}
	return rules
}

func TestAlertsReadMetricsThatExist(t *testing.T) {
	metrics := expose(t)
	for _, rule := range alerts(t) {
		metrics.check(t, rule.Expr, map[string]bool{})
	}
}

// Each case is what a server has scraped, a value a minute, and when the alert fires for it: "" for
// never.
func TestAlertsFire(t *testing.T) {
	const of = `{job="j", instance="i", client="orders"} `
	const counting = "dblock_acquire_failures_total"
	cases := map[string][]struct{ series, fires string }{
		"DblockLockLost": {
			{"dblock_locks_lost_total" + of + "0x30", ""},
			{"dblock_locks_lost_total" + of + "0x5 1x20", "6m to 14m"},
		},
		"DblockHeartbeatLate": {
			{"dblock_session_ttl_seconds" + of + "15x20\ndblock_session_remaining_seconds" + of + "12x20\n" +
				"dblock_locks_held" + of + "1x20\ndblock_locks_waiting" + of + "0x20", ""},
			{"dblock_session_ttl_seconds" + of + "15x20\ndblock_session_remaining_seconds" + of + "12x9 7 3 12x9\n" +
				"dblock_locks_held" + of + "1x20\ndblock_locks_waiting" + of + "0x20", "10m to 11m"},
			{"dblock_session_ttl_seconds" + of + "15x20\ndblock_session_remaining_seconds" + of + "0x20\n" +
				"dblock_locks_held" + of + "0x20\ndblock_locks_waiting" + of + "0x20", ""}, // it has nothing to lose
			{"dblock_session_ttl_seconds" + of + "15x20\ndblock_session_remaining_seconds" + of + "0x20\n" +
				"dblock_locks_held" + of + "0x20\ndblock_locks_waiting" + of + "1x20", "0s to 20m"},
		},
		"DblockHeartbeatsFail": {
			{"dblock_heartbeat_failures_total" + of + "0x5 2x20", ""},
			{"dblock_heartbeat_failures_total" + of + "0x5 1 2 3 4 5 6 7 8 8x12", "9m to 14m"},
		},
		"DblockQueueLong": {
			{"dblock_longest_queue_waiters" + of + "50x20", ""},
			{"dblock_longest_queue_waiters" + of + "0x5 51x3 0x5", ""},
			{"dblock_longest_queue_waiters" + of + "0x5 51x20", "11m to 26m"},
		},
		"DblockWaiterOld": {
			{"dblock_oldest_waiter_seconds" + of + "600x20", ""},
			{"dblock_oldest_waiter_seconds" + of + "540+60x20", "3m to 20m"},
		},
		"DblockDeadlock": {
			{counting + `{job="j", instance="i", client="orders", outcome="refused"} 0+9x40`, ""},
			{counting + `{job="j", instance="i", client="orders", outcome="deadlock"} 0x5 1x40`, "6m to 34m"},
		},
		"DblockUnavailable": {
			{counting + `{job="j", instance="i", client="orders", outcome="unavailable"} 0x5 1x20`, ""}, // once
			{counting + `{job="j", instance="i", client="orders", outcome="unavailable"} 0x5 1+1x10 12x9`, "11m to 20m"},
		},
		"DblockInspectionFails": {
			{"dblock_inspection_success" + of + "1x5 0x3 1x5", ""},
			{"dblock_inspection_success" + of + "1x5 0x10", "11m to 16m"},
			{"dblock_inspection_success" + of + "0x10\n" + `dblock_inspection_success{job="j", instance="k", client="orders"} 1x10`, ""}, // another sees
		},
	}
	for name, rule := range alerts(t) {
		if len(cases[name]) == 0 {
			t.Errorf("no case for %s", name)
		}
		fires := false
		for _, c := range cases[name] {
			if got := fire(t, rule, c.series); got != c.fires {
				t.Errorf("%s fires %q for\n%s\nwant %q", name, got, c.series, c.fires)
			}
			fires = fires || c.fires != ""
		}
		if !fires {
			t.Errorf("no case in which %s fires", name)
		}
	}
	if len(cases) != len(alerts(t)) {
		t.Errorf("cases for %d alerts, there are %d", len(cases), len(alerts(t)))
	}
}

// fire tells when an alert fires, evaluated each minute, and fails where an annotation has a hole.
func fire(t *testing.T, rule rulefmt.Rule, series string) string {
	t.Helper()
	scraped, minutes := load(t, series)
	first, last, since := -1, -1, -1
	for minute := range minutes {
		active := scraped.query(t, rule.Expr, minute)
		switch {
		case len(active) == 0:
			since = -1
			continue
		case since < 0:
			since = minute
		}
		if time.Duration(minute-since)*time.Minute < time.Duration(rule.For) {
			continue
		}
		if first < 0 {
			first = minute
		}
		last = minute
		for what, text := range rule.Annotations {
			expand(t, rule.Alert+"'s "+what, text, active[0])
		}
	}
	if first < 0 {
		return ""
	}
	return fmt.Sprintf("%v to %v", model.Duration(time.Duration(first)*time.Minute), model.Duration(time.Duration(last)*time.Minute))
}

func expand(t *testing.T, what, text string, sample promql.Sample) {
	t.Helper()
	data := template.AlertTemplateData(sample.Metric.Map(), nil, "", sample)
	text = "{{ $labels := .Labels }}{{ $value := .Value }}" + text
	got, err := template.NewTemplateExpander(t.Context(), text, what, data, 0, nil, nil, []string{"missingkey=error"}).Expand()
	if err != nil || strings.Contains(got, "<no value>") || strings.TrimSpace(got) == "" {
		t.Errorf("%s: %q, %v", what, got, err)
	}
}
