package main

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestASpanHasTwoUnitsAtMost(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1234 * time.Millisecond: "1.2s", 59 * time.Second: "59s", time.Minute: "1m", 70 * time.Second: "1m10s",
		80 * time.Second: "1m20s",
		10 * time.Minute: "10m", 59*time.Minute + 59*time.Second: "59m59s", time.Hour: "1h00m",
		47*time.Hour + time.Minute: "47h01m",
		50 * time.Hour:             "2d02h", -20 * time.Second: "-20s", -90 * time.Second: "-1m30s",
	} {
		assert.Equal(t, span(d), want, d)
	}
}
