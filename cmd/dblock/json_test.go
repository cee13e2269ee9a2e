package main

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/reaper"
)

func TestJSONHasOneFormForAllValues(t *testing.T) {
	type inner struct{ SlotEnds, Began time.Time }
	type value struct {
		inner
		snapshot
		PID, ClassID int
		Name         string
		Waits        time.Duration
		List         []inner
		Empty        []string
		Map, NoMap   map[string]string
		None         *inner
		hidden       int
	}
	at := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	v := value{inner: inner{SlotEnds: at}, snapshot: snapshot{Kind: "slot"}, PID: 1, ClassID: 2, Name: "a\"<b>\x1b",
		Waits: 1500 * time.Millisecond, List: []inner{{}}, Map: map[string]string{"K": "v"}, hidden: 3}
	var line bytes.Buffer
	require.NoError(t, writeJSON(&line, v))
	assert.Equal(t, line.String(), `{"slot_ends":"2026-11-30T03:00:00Z","began":null,"kind":"slot","held_by":"",`+
		`"age":0,"transactions":0,"versions":0,"pid":1,"class_id":2,"name":"a\"\u003cb\u003e\u001b","waits":1.5,`+
		`"list":[{"slot_ends":null,"began":null}],"empty":[],"map":{"K":"v"},"no_map":{},"none":null}`+"\n")
}

func TestAKeyOfJSONIsAFieldInSnakeCase(t *testing.T) {
	for field, key := range map[string]string{"Untold": "untold", "HandedOn": "handed_on", "PID": "pid",
		"ClassID": "class_id", "IDOfSlot": "id_of_slot", "SlotBegins": "slot_begins"} {
		assert.Equal(t, snake(field), key)
	}
}

// What programs read is what the page promises them.
func TestTheReadmeHasTheKeysOfJSON(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for commands, row := range map[string]any{
		"`ls`, `show`": inspect.Info{}, "`holders`, `waiters` of these": inspect.Participant{},
		"`ls --native`": native{},
		"`why`":         link{}, "`transactions` of `why`": obstacle{}, "`snapshot` of `why`": snapshot{},
		"`sessions`": inspect.Session{}, "`jobs`, `runs`": jobs.Run{}, "`events`": inspect.Event{}, "`key`": keys{},
		"`hold`, `renew`": lease{}, "`break`": broken{}, "`doctor`": finding{}, "`reap`": reaper.Report{},
		"`migrate up`, `migrate status`": migration{}, "`version`": build{},
	} {
		var keys []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(row)) {
			if !f.Anonymous && f.IsExported() {
				keys = append(keys, "`"+snake(f.Name)+"`")
			}
		}
		want := fmt.Sprintf("| %s | %s |", commands, strings.Join(keys, ", "))
		if !strings.Contains(string(readme), want) {
			t.Errorf("README lacks\n%s", want)
		}
	}
}
