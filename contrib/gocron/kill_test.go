package gocronlock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/dblock-go/dblock"
	gocronlock "github.com/dblock-go/dblock/contrib/gocron"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/sqlite"
)

// The environment of a process of its own that runs a scheduler.
const (
	childKind = "DBLOCK_GOCRON_CHILD" // "slots" or "leader"
	childFile = "DBLOCK_GOCRON_FILE"  // the database
)

// slot is how long a slot is. Schedulers look four times in each.
const slot = 200 * time.Millisecond

// serve runs a scheduler until its standard input ends. Its job prints its token.
func serve() {
	err := func() error {
		db, err := pool(os.Getenv(childFile))
		if err != nil {
			return err
		}
		c, err := dblock.New(sqlite.New(db), dblock.WithTTL(10*time.Second))
		if err != nil {
			return err
		}
		var option gocron.SchedulerOption
		var task any
		switch os.Getenv(childKind) {
		case "slots":
			locker, err := gocronlock.Every(c, slot)
			if err != nil {
				return err
			}
			option, task = gocron.WithDistributedLocker(locker),
				locker.Task(job, func(_ context.Context, l dblock.Handle) error {
					_, err := fmt.Println(l.Token())
					return err
				})
		case "leader":
			elector, err := gocronlock.NewElector(c, leaders)
			if err != nil {
				return err
			}
			option, task = gocron.WithDistributedElector(elector),
				elector.Task(func(_ context.Context, token int64) error {
					_, err := fmt.Println(token)
					return err
				})
		}
		s, err := gocron.NewScheduler(option)
		if err != nil {
			return err
		}
		if _, err := s.NewJob(gocron.DurationJob(slot/4), gocron.NewTask(task), gocron.WithName(job)); err != nil {
			return err
		}
		s.Start()
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// ran is a run of the job in one of the processes.
type ran struct {
	by    *exec.Cmd
	token int64
}

// start runs a scheduler in a process of its own, which ends with the test at the latest.
func start(t *testing.T, kind, file string, to chan<- ran) *exec.Cmd {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childKind+"="+kind, childFile+"="+file)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			token, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil {
				t.Errorf("the process printed %q", lines.Text())
				continue
			}
			to <- ran{child, token}
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = child.Process.Kill()
		<-read
		_ = child.Wait()
	})
	return child
}

// twenty are twenty runs of two processes, of which the one with the eighth run is killed then.
func twenty(t *testing.T, kind, file string) (all []ran, killed *exec.Cmd) {
	runs := make(chan ran, 1000)
	for range 2 {
		start(t, kind, file, runs)
	}
	for len(all) < 20 {
		all = append(all, receive(t, runs))
		if len(all) == 8 {
			killed = all[7].by
			require.NoError(t, killed.Process.Kill())
		}
	}
	return all, killed
}

func TestTwentySlotsOfTwoSchedulersOfWhichOneIsKilled(t *testing.T) {
	t.Parallel()
	file := file(t)
	all, killed := twenty(t, "slots", file)
	slots := map[int64]int64{} // by token: the database has one run of each slot
	for r, err := range jobs.New(client(t, file)).Runs(t.Context(), job) {
		require.NoError(t, err)
		if r.Tries != 1 {
			t.Errorf("slot %d was begun %d times", r.Slot, r.Tries)
		}
		slots[r.Token] = r.Slot
	}
	for i, r := range all {
		if _, there := slots[r.token]; !there {
			t.Errorf("run %d has no slot of its own", i)
		}
		delete(slots, r.token)
	}
	if all[19].by == killed {
		t.Error("the process that was left has run nothing")
	}
}

func TestTwentyRunsOfTheLeaderOfTwoSchedulersWhichIsKilled(t *testing.T) {
	t.Parallel()
	all, killed := twenty(t, "leader", file(t))
	for i, r := range all[1:] {
		switch before := all[i]; {
		case before.by == r.by && before.token != r.token:
			t.Errorf("run %d: one process led twice", i)
		case before.by != r.by && (before.by != killed || r.token <= before.token):
			t.Errorf("run %d: two processes lead at once", i)
		}
	}
	if all[19].by == killed {
		t.Error("nobody has succeeded the leader")
	}
}
