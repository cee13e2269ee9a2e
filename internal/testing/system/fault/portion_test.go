//go:build unix

package fault

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/protocol"
)

// portion is how a name is taken. The zero value: the whole of it.
type portion struct{ Units, Of int }

var reader = portion{1, protocol.Readers}

func (g portion) String() string {
	switch g {
	case portion{}:
		return "the whole"
	case reader:
		return "a reader's share"
	}
	return fmt.Sprintf("%d of %d units", g.Units, g.Of)
}

func (g portion) options() []dblock.LockOption {
	switch g {
	case portion{}:
		return nil
	case reader:
		return []dblock.LockOption{dblock.Shared()}
	}
	return []dblock.LockOption{dblock.Permits(g.Units, g.Of)}
}

// beside reports whether one holder can have this portion while others have that.
func (g portion) beside(others []portion) bool {
	used, least := g.Units, g.Of
	for _, o := range others {
		if g.Units == 0 || o.Units == 0 || (g == reader) != (o == reader) {
			return false
		}
		used, least = used+o.Units, min(least, o.Of)
	}
	return used <= least || len(others) == 0
}

// What crews share: names that begin so are read and written, or are semaphores. Others are taken
// whole.
const (
	readName    = "read"
	permitsName = "permits"
	permits     = 5 // most requests state so many,
	fewPermits  = 3 // and some no more
)

func isRead(name string) bool { return strings.HasPrefix(name, readName) }

func isPermits(name string) bool { return strings.HasPrefix(name, permitsName) }

// gradeOf is one that the name is taken in.
func gradeOf(random *rand.Rand, name string) portion {
	switch {
	case isRead(name) && random.IntN(3) > 0:
		return reader
	case isPermits(name) && random.IntN(12) > 0:
		of := permits
		if random.IntN(6) == 0 {
			of = fewPermits
		}
		return portion{1 + random.IntN(of), of}
	}
	return portion{}
}
