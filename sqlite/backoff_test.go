package sqlite

import (
	"testing"
	"time"
)

func TestPausesAreShortUntilATransactionHasLastedForLong(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var b backoff
	for waited := time.Duration(0); waited < time.Second; waited += b.pause {
		b.lengthen(now.Add(waited))
		if b.pause < firstPause || b.pause > longestPause || b.pause > max(shortPause, waited/pauseRatio) {
			t.Fatalf("a pause of %v after %v", b.pause, waited)
		}
	}
	if b.pause != longestPause {
		t.Errorf("a pause of %v after a second", b.pause)
	}
}
