package crash

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// BenchmarkSweep is the time of a sweep over sessions that are alive, beside that of a listing of
// the folder, in turns. A client that waits sweeps ten times a second: core-% is the share of a
// core that this takes.
func BenchmarkSweep(b *testing.B) {
	for _, live := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			f := Folder(b.TempDir())
			for i := range live {
				l, err := f.Register(fmt.Sprintf("S%d", i))
				require.NoError(b, err)
				b.Cleanup(l.End)
			}
			var sweeps, listings time.Duration
			for b.Loop() {
				start := time.Now()
				for p := range f.Ended(0) {
					b.Fatalf("%s is dead", p.Session)
				}
				swept := time.Now()
				listed, err := f.listing()
				listings += time.Since(swept)
				sweeps += swept.Sub(start)
				require.NoError(b, err)
				assert.Equal(b, listed, live, "files")
			}
			b.ReportMetric(0, "ns/op")
			each := sweeps.Seconds() / float64(b.N)
			b.ReportMetric(each*1e6, "µs/sweep")
			b.ReportMetric(each*10*100, "core-%")
			b.ReportMetric(float64(sweeps)/float64(listings), "listings/sweep")
		})
	}
}

func (f Folder) listing() (files int, err error) {
	folder, err := os.Open(string(f))
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	return len(names), err
}

// BenchmarkRegister is the time in which a session makes and removes its file, beside that of a
// file with the same text that proves nothing, in turns.
func BenchmarkRegister(b *testing.B) {
	f := Folder(b.TempDir())
	other, err := f.Register("other") // the folder stays
	require.NoError(b, err)
	defer other.End()
	text, err := os.ReadFile(other.path)
	require.NoError(b, err)
	var files, plain time.Duration
	for b.Loop() {
		start := time.Now()
		l, err := f.Register("S")
		require.NoError(b, err)
		l.End()
		made := time.Now()
		path := f.path("P")
		require.NoError(b, os.WriteFile(path, text, 0o600))
		require.NoError(b, os.Remove(path))
		plain += time.Since(made)
		files += made.Sub(start)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(files.Seconds()*1e6/float64(b.N), "µs/session")
	b.ReportMetric(float64(files)/float64(plain), "plain-files/session")
}
