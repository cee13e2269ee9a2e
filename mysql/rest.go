package mysql

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// rest sleeps for a nap, or until it is interrupted, with a statement that names no table: an idle
// listener blocks no DDL. A KILL before the statement begins is lost. So another connection looks
// for grants once the listener sleeps. looked reports whether that connection could.
func (l *listener) rest(ctx context.Context, wake func(protocol.Hint)) (outcome int64, looked bool, err error) {
	l.tag = mysqlserver.NewTag()
	asleep, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		defer end()
		var err error
		outcome, err = l.sleep(ctx, l.nap, func(ctx context.Context) (int64, error) { return l.sleepTied(ctx) })
		ended <- err
	}()
	rows, beside := l.lookOnSide(asleep)
	if beside == nil {
		for _, h := range l.learn(rows) {
			wake(h)
		}
	}
	if err = <-ended; err == nil && outcome == slept {
		l.tag = ""
	}
	return outcome, beside == nil, err
}

// sleepTied sleeps, and holds the tag meanwhile. An interrupted sleep may leave the tag behind.
func (l *listener) sleepTied(ctx context.Context) (outcome int64, err error) {
	sleep := fmt.Sprintf("2 * SLEEP(%f)", l.nap.Seconds())
	if l.sleepLock != "" {
		sleep = fmt.Sprintf("COALESCE(GET_LOCK('%s', %f), 2)", l.sleepLock, l.nap.Seconds())
	}
	var untied any
	err = l.conn.QueryRowContext(ctx, fmt.Sprintf("SELECT IF(GET_LOCK('%s', 0) = 1, %s, NULL), RELEASE_LOCK('%[1]s')",
		l.tag.Name(), sleep)).Scan(&outcome, &untied)
	return checkSleepLock(outcome, err)
}

// untie releases the tag of an interrupted sleep. cut has the meaning that it has in news.
func (l *listener) untie(ctx context.Context) (cut bool, err error) {
	if l.tag == "" {
		return false, nil
	}
	within, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	for {
		if _, err = l.conn.ExecContext(within, "DO RELEASE_LOCK('"+l.tag.Name()+"')"); !mysqlserver.WasKilled(err) {
			l.tag = ""
			return cut, unanswered(ctx, err)
		}
		cut = true
	}
}

// lookOnSide reads grants by other sessions once the statement with the tag has begun. It stops
// when asleep ends.
func (l *listener) lookOnSide(asleep context.Context) (rows []mysqldb.UnseenRow, err error) {
	err = l.engine.side.Do(asleep, func(ctx context.Context, u upkeep) error {
		for pause := firstPause; ; pause = min(2*pause, longestPause) {
			tied, err := l.tag.IsTied(ctx, u.conn)
			if err != nil {
				return err
			}
			if tied {
				break
			}
			if err := sleep(ctx, pause); err != nil {
				return err
			}
		}
		rows, err = l.unseen(ctx, u.q)
		return err
	})
	return rows, err
}
