package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/tell"
	"github.com/dblock-go/dblock/jobs"
)

// Variables in the environment of the command.
const (
	nameVariable  = "DBLOCK_NAME"
	tokenVariable = "DBLOCK_TOKEN"
)

const runHelp = `run takes the locks, runs the command while it holds them, and releases them. It ends with the command's exit status.

The command finds DBLOCK_NAME and DBLOCK_TOKEN in its environment. A token is higher than all earlier tokens of the name, so that the
protected resource can refuse an older one. For several names both are lists, separated by spaces. A run within the command that would wait
for the same lock, and so for its own end, notices that by these variables and ends with status 1.

If the lock is not free (--no-wait), or not in time (--wait), run ends with status 75, or with that of -E. Wrong arguments are status 2. All
other failures of run itself are status 1.

Signals to run (INT, TERM, HUP, QUIT, USR1, USR2) go to the command and all its children (its process group). INT, TERM, HUP and QUIT also
continue a stopped command, so that it can end. While run waits for the lock, INT, TERM and HUP end the wait.

When the lock is about to be lost, because no heartbeat has reached the database for nearly the TTL, the command gets TERM, and KILL after
--grace: before the TTL has passed, and so before another client can have the lock. After "dblock break" another client may have the lock at
once: the command gets TERM as soon as run is notified, and KILL after --grace. That is a moment too late: use DBLOCK_TOKEN where it matters.

In a shell, "dblock run ... &" is a job: if the command reads the terminal, the job stops until fg continues it, or the end of its terminal
ends it (HUP). A stopped run renews nothing. Without a shell that could continue it, as in a container with a terminal, run continues a
command that ^Z stops, and ends one that waits for the terminal in the background.

As the entry point of a container (PID 1), run also reaps orphans: descendants of the command that have lost their parent.

If run is killed (-9), the command is killed too (Linux), but not its children. As long as one of them is left, the lock stays until the
TTL; once none is, the next client on this host gets it at once. For that the command and its children inherit an open file, with a number
of 100 or more.

Not covered: children of a command that closes inherited files before it starts them (sudo, subprocess of Python), if run is killed (-9):
the next client on this host gets the lock beside them, at once and not after the TTL. A run that is itself stopped (kill -STOP), or killed
together with its host's network, cannot stop its command in time. Signals do not reach a command that leaves its process group (setsid), or
hangs in the kernel (state D).

Once per slot (--once-per, --slot-of) is for cron: with the same line on every host, the command runs once, on one of the hosts. If another
host has the slot, run ends with status 0 and does nothing.

--slot-of uses the wall clock of --tz, by default this host's zone, as in its crontab; give --tz if the zones of the hosts differ. As with
cron itself, a time that the clock skips in spring is due when the clock is put forward (2:30 at 3:00), and a time that it shows twice in
autumn is due the first time; an hourly time continues. If the latest time is a quarter of an hour or more beyond --late, the zone or the
expression must be wrong: run ends with status 1.`

// holding are the locks that run is to hold, and their options.
type holding struct {
	names    []string
	noWait   bool
	wait     time.Duration
	shared   bool
	permits  string
	ttl      time.Duration
	grace    time.Duration
	lease    time.Duration
	minHold  time.Duration
	owner    string
	metadata map[string]string
	oncePer  time.Duration
	slotOf   string
	zone     string
	late     time.Duration
	retries  int
	backoff  time.Duration
	notFree  uint8

	getenv  func(string) string
	stderr  io.Writer
	release func() // from then on no signal ends the context
}

// localZone and lateness are the defaults of --tz and --late.
const (
	localZone = "Local"
	lateness  = 10 * time.Minute
)

// execute runs a command under locks.
func execute(o *options) *cobra.Command {
	var h holding
	c := &cobra.Command{
		Use:   "run [flags] NAME... -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long:  runHelp,
		Example: `  dblock run backup -- pg_dump orders
  dblock run --no-wait --local build -- make
  dblock run --once-per 1h report -- ./report            # in every host's crontab, every minute
  dblock run --slot-of "0 3 * * *" nightly -- ./nightly  # in every host's crontab, at 3:00`,
		RunE: func(c *cobra.Command, args []string) error {
			dash := c.ArgsLenAtDash()
			if dash < 1 || dash == len(args) {
				return usageError{errors.New("want NAME... -- COMMAND [ARGUMENT...]")}
			}
			h.names = args[:dash]
			if !c.Flags().Changed("grace") {
				h.grace = min(h.ttl/4, 10*time.Second)
			}
			err := notEmpty(c, "slot-of", "once-per", "tz", "late", "permits", "owner", "lease")
			if err == nil {
				err = h.check()
			}
			if err != nil {
				return usageError{err}
			}
			stderr := queuedWriter{o.stderr, tell.New(func(int) {})}
			defer tell.Flush(stderr.queue)
			h.getenv, h.stderr, h.release = o.getenv, stderr, o.release
			return o.using(c.Context(), func(d database) error { return h.execute(c.Context(), d, args[dash:]) })
		},
	}
	f := c.Flags()
	f.BoolVarP(&h.noWait, "no-wait", "n", false, "do not wait for the lock")
	durationVar(f, &h.wait, "wait", "w", 0, "wait for the lock no longer than this; 0: for ever")
	f.BoolVarP(&h.shared, "shared", "s", false, "hold the lock together with others who share it")
	f.StringVar(&h.permits, "permits", "", "hold n of the name's permits: n/of")
	durationVar(f, &h.ttl, "ttl", "", 30*time.Second, "others get the lock after this time without a heartbeat")
	durationVar(f, &h.grace, "grace", "", 0,
		"time between TERM and KILL, at most half the TTL (default: a quarter of it, no more than 10s)")
	durationVar(f, &h.lease, "lease", "", 0, "hold the lock no longer than this, heartbeats or not")
	durationVar(f, &h.minHold, "min-hold", "", 0, "no other client gets the lock before this time has passed")
	f.StringVar(&h.owner, "owner", "",
		"a name for this run on this host: started again under it, it gets the lock back from its dead self at once "+
			"(and from a living one)")
	f.StringToStringVar(&h.metadata, "metadata", nil, "k=v to show with the lock")
	durationVar(f, &h.oncePer, "once-per", "", 0, "run the command once per interval over all hosts")
	f.StringVar(&h.slotOf, "slot-of", "",
		"run the command once for the latest time of this cron expression, over all hosts")
	f.StringVar(&h.zone, "tz", localZone,
		"time zone of --slot-of, such as Europe/Berlin; Local is this host's, which its crontab has too")
	durationVar(f, &h.late, "late", "", lateness,
		"do not run a slot of --slot-of that is older; until then a database that is away is tried again")
	f.IntVar(&h.retries, "retry-failed", 0, "how often a slot is run again after its run failed, or its host died")
	durationVar(f, &h.backoff, "retry-backoff", "", 0,
		"not before this time has passed since a failure, twice as much after the second, and so on")
	f.Uint8VarP(&h.notFree, "exit-code-if-not-acquired", "E", exitNotFree,
		"exit status where the lock is not free (--no-wait), or not in time (--wait)")
	return c
}

// notEmpty refuses flags that are given without a value: an unset variable in a crontab, say. They
// would be taken as not given, and the command would run on every host.
func notEmpty(c *cobra.Command, names ...string) error {
	for _, name := range names {
		switch f := c.Flags().Lookup(name); f.Value.String() {
		case "", "0s":
			if f.Changed {
				return fmt.Errorf("--%s: want a value, or leave it out", name)
			}
		}
	}
	return nil
}

// queuedWriter is a writer that nothing waits for. Without queuedWriter, a full pipe that is
// not read would keep a command alive after the end of its lock.
type queuedWriter struct {
	to    io.Writer
	queue *tell.Queue
}

func (w queuedWriter) Write(line []byte) (int, error) {
	line = bytes.Clone(line)
	w.queue.Add(func() { _, _ = w.to.Write(line) })
	return len(line), nil
}

// check refuses contradictory options, before any request to a database.
func (h *holding) check() error {
	slots := h.oncePer != 0 || h.slotOf != ""
	switch {
	case h.noWait && h.wait != 0:
		return errors.New("--no-wait and --wait: give one of them")
	case h.shared && h.permits != "":
		return errors.New("--shared and --permits: give one of them")
	case h.grace > h.ttl/2:
		return fmt.Errorf("--grace %v: want at most half of --ttl (%v), so that a single heartbeat that comes late "+
			"does no harm", h.grace, h.ttl)
	case h.lease != 0 && h.lease < 2*h.grace:
		return fmt.Errorf("--lease %v: want at least twice --grace (%v)", h.lease, h.grace)
	case h.lease != 0 && len(h.names) > 1:
		return errors.New("--lease: for one name only")
	case h.oncePer != 0 && h.slotOf != "":
		return errors.New("--once-per and --slot-of: give one of them")
	case h.slotOf == "" && (h.zone != localZone || h.late != lateness):
		return errors.New("--tz and --late: of --slot-of")
	case slots && len(h.names) > 1:
		return errors.New("--once-per and --slot-of: for one name only")
	case slots && (h.noWait || h.wait != 0 || h.shared || h.permits != "" || h.lease != 0 || h.minHold != 0 ||
		h.owner != "" || len(h.metadata) > 0):
		return errors.New("--once-per and --slot-of decide by themselves how the lock is held: give no other option " +
			"of the lock")
	case (h.retries != 0 || h.backoff != 0) && !slots:
		return errors.New("--retry-failed and --retry-backoff: of --once-per or --slot-of")
	case h.retries < 0 || h.backoff != 0 && h.retries == 0:
		return errors.New("--retry-failed: want at least 1, and --retry-backoff with it")
	}
	for _, name := range h.names {
		if err := checkName(name); err != nil {
			return err
		}
	}
	if h.slotOf != "" {
		if _, _, err := h.times(); err != nil {
			return err
		}
	}
	return h.rehearse()
}

// rehearse has the library check the options of the lock.
func (h *holding) rehearse() error {
	options, err := h.options()
	if err != nil {
		return err
	}
	return rehearse(func(ctx context.Context, c *client) error {
		if h.oncePer != 0 || h.slotOf != "" {
			never := func(context.Context, *dblock.Lock, time.Time) error { return nil }
			_, err := jobs.New(c).OncePer(ctx, h.names[0], cmp.Or(h.oncePer, time.Hour), never, h.retrying()...)
			return err
		}
		_, err := c.Lock(ctx, h.names[0], options...)
		return err
	}, dblock.WithTTL(h.ttl))
}

// options returns the options of the lock.
func (h *holding) options() (options []dblock.LockOption, err error) {
	if h.shared {
		options = append(options, dblock.Shared())
	}
	if h.permits != "" {
		n, of, _ := strings.Cut(h.permits, "/")
		units, err1 := strconv.Atoi(n)
		all, err2 := strconv.Atoi(of)
		if err1 != nil || err2 != nil || units < 1 || units > all {
			return nil, fmt.Errorf("--permits %q: want n/of, such as 1/5, with 1 <= n <= of", h.permits)
		}
		options = append(options, dblock.Permits(units, all))
	}
	if h.lease != 0 {
		options = append(options, dblock.Lease(h.lease))
	}
	if h.minHold != 0 {
		options = append(options, dblock.MinHold(h.minHold))
	}
	if h.owner != "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		options = append(options, dblock.Owner(host, h.owner))
	}
	if len(h.metadata) > 0 {
		options = append(options, dblock.Metadata(h.metadata))
	}
	return options, nil
}

// held is one lock or several.
type held interface {
	Context() context.Context
	Unlock(ctx context.Context) error
}

// hold is the lock or the locks that run holds.
type hold struct {
	held
	until func() time.Time // the end without another heartbeat
	// asked has the requests of others. While run listens to it, it learns at once that the lock
	// was revoked.
	asked  <-chan string
	tokens string
	// life keeps others on this host from the lock as long as the command, or a child of it, has
	// the file open: until the TTL.
	life *os.File
}

func holdOf(c *dblock.Client[*sql.Tx], l *dblock.Lock) hold {
	return hold{l, l.Until, l.Asked(), fmt.Sprint(l.Token()), inside.Of(c).Life()}
}

// execute takes the locks and runs the command under them.
func (h *holding) execute(ctx context.Context, d database, command []string) error {
	c, err := d.client(dblock.WithTTL(h.ttl), dblock.WithReaper())
	if err != nil {
		return err
	}
	defer func() { // releases the held locks as far as possible
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.ttl)
		defer cancel()
		_ = c.Close(closing)
	}()
	if h.oncePer != 0 || h.slotOf != "" {
		return h.once(ctx, c, command)
	}
	l, err := h.acquire(ctx, c)
	if err != nil {
		return err
	}
	err = h.supervise(ctx, l, command)
	unlocking, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.ttl)
	defer cancel()
	if failed := l.Unlock(unlocking); failed != nil && !errors.Is(err, errLost) {
		complain(h.stderr, failed)
	}
	return err
}

// errWait is the cause of a wait that --wait has ended.
var errWait = errors.New("not within the time of --wait")

// acquire takes the names.
func (h *holding) acquire(ctx context.Context, c *dblock.Client[*sql.Tx]) (hold, error) {
	options, err := h.options()
	if err != nil {
		return hold{}, err
	}
	if h.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, h.wait, errWait)
		defer cancel()
	}
	if err := h.checkOuter(ctx, c); err != nil {
		return hold{}, err
	}
	if len(h.names) == 1 {
		take := c.Lock
		if h.noWait {
			take = c.TryLock
		}
		one, err := take(ctx, h.names[0], options...)
		if err != nil {
			return hold{}, notFree(ctx, err, int(h.notFree))
		}
		return holdOf(c, one), nil
	}
	take, forAll := c.LockAll, make([]dblock.LocksOption, len(options))
	if h.noWait {
		take = c.TryLockAll
	}
	for i, option := range options {
		forAll[i] = option
	}
	all, err := take(ctx, h.names, forAll...)
	if err != nil {
		return hold{}, notFree(ctx, err, int(h.notFree))
	}
	var list []string
	for _, name := range h.names {
		list = append(list, fmt.Sprint(all.Token(name)))
	}
	until := func() time.Time { return c.Stats().AliveUntil }
	return hold{held: all, until: until, tokens: strings.Join(list, " "), life: inside.Of(c).Life()}, nil
}

// checkOuter refuses a name held by a run that has started this process: this run would wait for
// its own end. The token tells whether the name is so held in this database.
func (h *holding) checkOuter(ctx context.Context, c *dblock.Client[*sql.Tx]) error {
	outer, tokens := h.getenv(nameVariable), strings.Fields(h.getenv(tokenVariable))
	if outer == "" || h.noWait || h.owner != "" {
		return nil
	}
	for _, name := range h.names {
		if name != outer && !slices.Contains(strings.Fields(outer), name) {
			continue
		}
		info, err := inspect.New(c).Lock(ctx, name)
		if err != nil {
			return err
		}
		for _, by := range info.Holders {
			beside := by.Shared && h.shared || by.Permits > 0 && h.permits != ""
			if by.Alive && !beside && slices.Contains(tokens, fmt.Sprint(by.Token)) {
				return fmt.Errorf("%w: this command was started by a dblock run that holds %q (%s, %s), and would "+
					"wait for its own end: leave the inner run out, or unset %[3]s if that run does not wait for "+
					"this command",
					dblock.ErrDeadlock, name, nameVariable, tokenVariable)
			}
		}
	}
	return nil
}

// notFree gives an error the exit status of a lock that is not free, or not in time. A database
// that does not answer within that time is a failure.
func notFree(ctx context.Context, err error, status int) error {
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case errors.As(cause, new(interrupted)):
		return cause
	case errors.Is(err, dblock.ErrNotAcquired):
		return statusError{status, err}
	}
	return err
}
