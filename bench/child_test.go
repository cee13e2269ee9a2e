package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// TestMain is also the main of the other processes of a benchmark: the test binary starts itself.
func TestMain(m *testing.M) {
	f, ok := map[string]func(context.Context, database) error{"handoff": handoffChild, "first": firstChild,
		"same-host": holdChild(), "another-host": holdChild(elsewhere...)}[os.Getenv("DBLOCK_BENCH_CHILD")]
	if !ok {
		os.Exit(m.Run())
	}
	for _, k := range kinds {
		if k.name == os.Getenv("DBLOCK_BENCH_CHILD_KIND") {
			if err := f(context.Background(), database{kind: k, dsn: os.Getenv("DBLOCK_BENCH_CHILD_DSN")}); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
	os.Exit(0)
}

// child is another process, which is told what to do on its standard input, and answers on its
// standard output.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// start starts a child and waits until it says that it is ready.
func (d database) start(b *testing.B, what, name string) *child {
	b.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), "DBLOCK_BENCH_CHILD="+what, "DBLOCK_BENCH_CHILD_KIND="+d.kind.name,
		"DBLOCK_BENCH_CHILD_DSN="+d.dsn, "DBLOCK_BENCH_CHILD_NAME="+name)
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	require.NoError(b, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, c.cmd.Start())
	c.in, c.out = in, bufio.NewScanner(out)
	b.Cleanup(func() {
		_ = c.in.Close() // it ends by itself then, in good order
		_ = c.cmd.Wait()
	})
	c.expect(b, "ready")
	return c
}

// expect reads one line.
func (c *child) expect(b *testing.B, want string) {
	b.Helper()
	if !c.out.Scan() || strings.TrimSpace(c.out.Text()) != want {
		b.Fatalf("a child said %q: want %q (%v)", c.out.Text(), want, c.out.Err())
	}
}
