package main

import (
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestDoctorComparesTTLsWithAFailover(t *testing.T) {
	takes := failover{10 * time.Second, "it takes long"}
	for _, c := range []struct {
		left []time.Duration
		want level
		says string
	}{
		{nil, isOK, "0 clients"},
		{[]time.Duration{15 * time.Second, 8 * time.Second}, isOK, "2 clients"}, // a TTL of 10 s, a fifth ago
		{[]time.Duration{15 * time.Second, 4 * time.Second, 2 * time.Second}, isNote, "a TTL of 5s or less: 2"},
	} {
		if f := takes.judge(c.left); f.Level != c.want || !strings.Contains(f.Found, c.says) ||
			!strings.Contains(f.Found, "it takes long") {
			t.Errorf("%v: %+v", c.left, f)
		}
	}
}

func TestDoctorReadsHowLongAClusterWaits(t *testing.T) {
	for options, want := range map[string]time.Duration{
		"evs.join_retrans_period = PT1S; evs.suspect_timeout = PT7.5S; evs.version = 1": 7500 * time.Millisecond,
		"evs.suspect_timeout=PT1M30S":             90 * time.Second,
		"evs.inactive_timeout = PT15S; gcs.x = 1": 0,
		"": 0,
	} {
		assert.Equal(t, ofGalera(options).takes, want, options)
	}
	assert.Equal(t, ofGroup(5).takes, 10*time.Second)
}
