package main

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestAFeeIsThreePercentRoundedHalfUp(t *testing.T) {
	for balance, want := range map[int64]int64{0: 0, 16: 0, 17: 1, 49: 1, 50: 2, 100: 3, 1_00_00: 3_00, 1_00_16: 3_00,
		1_00_17: 3_01} {
		assert.Equal(t, fee(balance), want, "fee(", balance, ") =")
	}
}

func TestReplayIsOneFeeAfterTheOther(t *testing.T) {
	a := account{balance: deposit}
	for n := range 5000 {
		if got := replay(n); n%500 == 0 && got != a {
			t.Fatalf("replay(%d) = %+v, want %+v", n, got, a)
		}
		if fee(a.balance) == 0 {
			t.Fatalf("after %d fees, the next one of %s is nothing", n, money(a.balance))
		}
		a = a.afterFee()
	}
	// Worked out by another program, so that the rule itself cannot change unseen.
	for n, want := range map[int]int64{1: 970_000_000_00, 2: 940_900_000_00, 400: 5_113_21} {
		if got := replay(n).balance; got != want {
			t.Errorf("the balance after %d fees is %s, want %s", n, money(got), money(want))
		}
	}
}

func TestMoneyIsReadable(t *testing.T) {
	for cents, want := range map[int64]string{
		0: "0.00", 5: "0.05", 99999: "999.99", 100000: "1,000.00", 123456789: "1,234,567.89",
		deposit: "1,000,000,000.00", -100001: "-1,000.01",
	} {
		assert.Equal(t, money(cents), want, "money(", cents, ") =")
	}
}
