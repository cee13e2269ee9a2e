package inspection

import (
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// Session is a row that Sessions reads, in the order of its columns.
type Session struct {
	ID        string
	Host      string
	Pid       int64
	App       string
	StartedAt int64
	NowUs     int64
	ExpiresAt int64 // 0: it is dead
	Held      int64
	Waiting   int64
	Buried    string // why it was buried, or ""
}

// Detail returns the session as package inspect shows it.
func (s Session) Detail() driver.SessionDetail {
	return driver.SessionDetail{
		ID: s.ID, Host: s.Host, App: s.App, PID: int(s.Pid), Started: time.UnixMicro(s.StartedAt),
		Dead: s.ExpiresAt == 0, Left: duration(s.ExpiresAt - s.NowUs), Held: int(s.Held), Waiting: int(s.Waiting),
		Buried: s.Buried,
	}
}
