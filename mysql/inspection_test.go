package mysql_test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/migrations"
)

func TestDescribeTellsAllAboutNames(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		r := a.request("whole")
		r.Metadata, r.Lease, r.MinHold = `{"k":"v"}`, time.Hour, time.Hour
		whole := a.share(t, r)
		waiting := b.units("whole", 2, 3)
		waiting.Metadata = `{"w":1}`
		b.wait(t, waiting)
		b.wait(t, b.request("whole"))
		if _, err := a.ask(t.Context(), "whole", "please", driver.Event{Name: "whole", Kind: "asked"}); err != nil {
			t.Fatal(err)
		}
		one, two := a.share(t, a.reader("shared")), b.share(t, b.reader("shared"))
		must(t, errorOf(drivertest.Release(t.Context(), a, a.share(t, a.units("idle", 1, 2)), false)))
		s.expire(t, b)
		details, err := a.Describe(t.Context(), []string{"whole", "shared", "none", "idle"}, driver.AllWaiters)
		must(t, err)
		var names []string
		for _, d := range details {
			names = append(names, d.Name)
		}
		if !slices.Equal(names, []string{"idle", "shared", "whole"}) {
			t.Fatalf("%q", names)
		}
		if d := details[0]; d.Token == 0 || d.Capacity != 0 || d.Holders != nil || d.Waiters != nil || d.Rest != 0 {
			t.Fatalf("%+v", d)
		}
		d := details[1]
		if d.Token != two.Token || d.Capacity != driver.Readers || len(d.Holders) != 2 || d.Holders[0].Grant.Token != one.Token || d.Holders[1].Grant.Token != two.Token ||
			d.Holders[0].Units != 1 || d.Holders[0].Left <= 0 || d.Holders[1].Left > 0 || d.Holders[0].Grant.Contended {
			t.Fatalf("%+v", d)
		}
		d = details[2]
		if d.Token != whole.Token || d.Capacity != 3 || len(d.Holders) != 1 || len(d.Waiters) != 2 || d.Rest < 59*time.Minute || d.Rest > time.Hour {
			t.Fatalf("%+v", d)
		}
		h := d.Holders[0]
		if h.Session != a.session || h.Host != "h" || h.Thread != r.Thread || h.Attempt != r.Attempt || h.Units != 0 || h.Grant.Token != whole.Token || !h.Grant.Contended ||
			h.Grant.Lease <= 59*time.Minute || h.App != "test" || h.Metadata != r.Metadata || h.Asked != "please" || time.Since(h.Since).Abs() > time.Minute {
			t.Fatalf("%+v", h)
		}
		w := d.Waiters[0]
		if w.Session != b.session || w.Attempt != waiting.Attempt || w.Units != 2 || w.Grant != (driver.Grant{}) || w.Metadata != waiting.Metadata || w.Left > 0 ||
			time.Since(w.Since).Abs() > time.Minute || d.Waiters[1].Units != 0 {
			t.Fatalf("%+v", w)
		}
	})
}

func TestNamesAreListedPageByPage(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		for _, name := range []string{"p", "p/1", "p/2", "p0", "P/1", "ÿ1", "ÿ", "Ā", "p/\xff", "\xff\xff", "\xff\xff1"} {
			a.take(t, name)
		}
		must(t, errorOf(drivertest.Release(t.Context(), a, a.take(t, "p/idle"), false)))
		elsewhere := a.units("p/3", 1, 2)
		elsewhere.Host = "elsewhere"
		a.share(t, elsewhere)
		a.wait(t, a.request("p/2"))
		for _, c := range []struct {
			filter driver.Filter
			want   []string
		}{
			{driver.Filter{Prefix: "p/"}, []string{"p/1", "p/2", "p/3", "p/\xff"}},
			{driver.Filter{Prefix: "p/", Idle: true}, []string{"p/1", "p/2", "p/3", "p/idle", "p/\xff"}},
			{driver.Filter{Prefix: "ÿ"}, []string{"ÿ", "ÿ1"}},
			{driver.Filter{Prefix: "p/\xff"}, []string{"p/\xff"}},
			{driver.Filter{Prefix: "\xff"}, []string{"\xff\xff", "\xff\xff1"}},
			{driver.Filter{Prefix: "\xff\xff"}, []string{"\xff\xff", "\xff\xff1"}},
			{driver.Filter{Prefix: "p%"}, nil},
			{driver.Filter{Host: "elsewhere"}, []string{"p/3"}},
			{driver.Filter{Host: "elsewhere "}, nil},
			{driver.Filter{Host: "nowhere", Idle: true}, nil},
			{driver.Filter{Older: time.Hour}, nil},
			{driver.Filter{}, []string{"P/1", "p", "p/1", "p/2", "p/3", "p/\xff", "p0", "ÿ", "ÿ1", "Ā", "\xff\xff", "\xff\xff1"}},
		} {
			for _, limit := range []int{1, 3, 100} {
				var got []string
				for c.filter.After = ""; ; {
					names, err := a.Names(t.Context(), c.filter, limit)
					must(t, err)
					if len(names) > limit {
						t.Fatalf("%d names, at most %d were asked for", len(names), limit)
					}
					got = append(got, names...)
					if len(names) < limit {
						break
					}
					c.filter.After = names[len(names)-1]
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("%+v, %d at a time: %q, want %q", c.filter, limit, got, c.want)
				}
			}
		}
		// The host and the time of one and the same holder.
		s.exec(t, "UPDATE dblock_locks SET acquired_at = 1 WHERE name IN ('p', 'p/3')")
		a.share(t, a.units("p/3", 1, 2))
		s.exec(t, "UPDATE dblock_shares SET acquired_at = 1 WHERE host = 'h'")
		for _, c := range []struct {
			filter driver.Filter
			want   []string
		}{
			{driver.Filter{Older: time.Hour}, []string{"p", "p/3"}},
			{driver.Filter{Older: time.Hour, Host: "elsewhere"}, nil},
			{driver.Filter{Older: time.Hour, Host: "h", Prefix: "p/"}, []string{"p/3"}},
		} {
			if got, err := a.Names(t.Context(), c.filter, 10); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%+v: %q %v", c.filter, got, err)
			}
		}
		if _, err := a.Describe(t.Context(), slices.Repeat([]string{"p"}, 600), 0); err != nil {
			t.Error(err)
		}
	})
}

// A column that is added is written twice: for the servers in the text of a prepared statement, for
// sqlc in a comment.
func TestSqlcReadsTheColumnsThatTheServersGet(t *testing.T) {
	dir, err := migrations.FS("mysql")
	must(t, err)
	names, err := fs.Glob(dir, "*.sql")
	must(t, err)
	var text []byte
	for _, name := range names {
		file, err := fs.ReadFile(dir, name)
		must(t, err)
		text = append(text, file...)
	}
	columns := func(statements string) (list []string) {
		for _, statement := range regexp.MustCompile(statements).FindAllString(string(text), -1) {
			for _, column := range regexp.MustCompile(`ALTER TABLE \w+|ADD COLUMN \w+ +\w+(\(\d+\))?`).FindAllString(statement, -1) {
				list = append(list, strings.Join(strings.Fields(column), " "))
			}
		}
		return list
	}
	servers, sqlc := columns(`(?s)'\s*ALTER TABLE[^']+ADD COLUMN[^']+'`), columns(`(?s)/\*T! .*?\*/`)
	if !slices.Equal(servers, sqlc) || len(sqlc) < 2 {
		t.Fatalf("the servers get %q\nsqlc reads %q", servers, sqlc)
	}
}
