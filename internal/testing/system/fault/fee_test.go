//go:build unix

package fault

import (
	"os/exec"
	"regexp"
	"strconv"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// bugNoLock is the first half of examples/fee, which works without the lock.
const bugNoLock = "deducts fees without the lock"

var feesLost = regexp.MustCompile(`(?m)^Without the lock: (\d+) of \d+ fees were lost .*$`)

// feeRound runs examples/fee, whose server is killed or stopped inside of the lock. The program
// judges itself: it fails where the account is not exact, where a token goes back, and where a
// stale write is not refused. That it ends well says that it came to all of these.
func feeRound(w *world) {
	accident, ends := "-crash", "with the higher token"
	if w.random.IntN(2) == 0 {
		accident, ends = "-pause", "refused, 0 rows updated"
	}
	args := []string{"-rounds=60", "-ttl=" + ttl.String(), accident}
	if w.engine != dbtest.KindSQLite {
		args = append(args, "-dsn="+w.db.DSN)
	}
	out, err := exec.CommandContext(w.Context(), *soakFee, args...).CombinedOutput()
	if err != nil || !regexp.MustCompile(ends).Match(out) {
		w.Fatalf("fee %v: %v: %s", args[2:], err, out)
	}
	w.tried(map[string]string{"-crash": "kills", "-pause": "stops"}[accident], 1)
	w.tried("fees with the lock", 60)
	if lost := feesLost.FindSubmatch(out); lost != nil {
		n, _ := strconv.Atoi(string(lost[1]))
		w.tried("lost without it", n)
		if w.bug != "" && n > 0 {
			w.Errorf("%s", lost[0])
		}
	}
}
