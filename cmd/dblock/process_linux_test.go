package main

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// parental makes the command the parent of its descendants' orphans, as PID 1 is.
const parental = "DBLOCK_TEST_PARENTAL"

func init() {
	if os.Getenv(parental) == "" {
		return
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
}

// As the entry point of a container, run is the parent of orphans. Broken by a zombie that stays
// until the container ends, and by the status of an orphan in place of the command's.
func TestRunReapsOrphans(t *testing.T) {
	const orphan = `pid=$(sh -c 'sh -c "sleep 0.05; exit 7" >/dev/null & echo $!')
for i in $(seq 1000); do [ -e /proc/$pid ] || exit 42; sleep 0.01; done`
	w := onSQLite(t)
	c := w.command("run", "n", "--", "sh", "-c", orphan)
	c.Env = append(c.Env, parental+"=1")
	if s := outcome(t, c); s.status != 42 || s.err != "" {
		t.Errorf("%+v", s)
	}
}
