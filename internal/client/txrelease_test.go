package client

import (
	"errors"
	"testing"
)

func TestWhatWasSeenBeforeUnlockTxProvesNothing(t *testing.T) {
	var d txRelease
	early := d.seen()
	settle := d.begin()
	meanwhile := d.seen() // the row is not locked yet
	settle(nil)
	for _, rolledBack := range []func(){early, meanwhile} {
		if rolledBack(); !d.possible() {
			t.Fatal("what was seen before UnlockTx had the row shows that it was rolled back")
		}
	}
	rolledBack := d.seen()
	if rolledBack(); d.possible() {
		t.Error("the rollback was seen, and does not count")
	}
	early()
	if d.possible() {
		t.Error("nothing was released, and it may have been")
	}
}

func TestAnUnlockTxThatFailedIsNone(t *testing.T) {
	var d txRelease
	d.begin()(errors.New("no"))
	if d.possible() {
		t.Error("the only UnlockTx failed")
	}
	d.begin()(nil)
	d.begin()(errors.New("no"))
	if !d.possible() {
		t.Error("the first UnlockTx may commit")
	}
}
