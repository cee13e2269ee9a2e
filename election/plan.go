package election

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
)

// pair is a member that may own a shard.
type pair struct {
	member string
	shard  int
	weight uint64 // a hash of both
}

// plan divides shards among members: the same on each member that knows the same ones.
type plan struct {
	members map[string]int // and the number of shards of each
	pairs   []pair         // the heaviest first
	shards  int
}

func planOf(members map[string]int) plan {
	p := plan{members: members}
	for member, shards := range members {
		p.shards = max(p.shards, shards)
		for shard := range shards {
			sum := sha256.Sum256([]byte(ShardName(member, shard)))
			p.pairs = append(p.pairs, pair{member, shard, binary.BigEndian.Uint64(sum[:])})
		}
	}
	slices.SortFunc(p.pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.member, b.member), cmp.Compare(a.shard, b.shard))
	})
	return p
}

// owners returns the owner of each shard; "": there is none. The heaviest pairs come first
// (rendezvous hashing), but no member has more than one above its part, rounded up. Without is a
// member that is left out; "": none.
//
// The bound holds in the order of weights. In the order of the shards, a member that comes or goes
// would move more shards between others.
func (p plan) owners(without string) []string {
	owners, has := make([]string, p.shards), map[string]int{}
	among := len(p.members)
	if _, out := p.members[without]; out {
		among--
	}
	most := (p.shards+max(among, 1)-1)/max(among, 1) + 1
	for _, limit := range []int{most, p.shards} { // beyond the limit only what those with fewer shards do not have
		for _, pair := range p.pairs {
			if pair.member != without && owners[pair.shard] == "" && has[pair.member] < limit {
				owners[pair.shard] = pair.member
				has[pair.member]++
			}
		}
	}
	return owners
}

// ranks returns the ranks of a member for its shards: 0 as the owner, standby as the owner without
// the present one, or unranked.
func (p plan) ranks(me string, shards int) []int {
	ranks := slices.Repeat([]int{unranked}, shards)
	if _, alive := p.members[me]; !alive {
		return ranks
	}
	owners := p.owners("")
	ranked := ranks[:min(shards, p.shards)]
	for owner := range maps.Keys(p.members) {
		if owner == me {
			continue
		}
		next := p.owners(owner)
		for shard := range ranked {
			if owners[shard] == owner && next[shard] == me {
				ranks[shard] = standby
			}
		}
	}
	for shard := range ranked {
		if owners[shard] == me {
			ranks[shard] = 0
		}
	}
	return ranks
}
