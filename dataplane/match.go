package dataplane

import "gradnic/wire/inet"

// matchTable finds a worker by the source addresses of its frames. Only its lane changes it, and only a job's
// workers at a time; what takes longer is built beside the lane. Open addressing with linear probing; at most half
// full, so that a miss ends soon.
type matchTable struct {
	entries  []matchEntry
	mask     uint64
	reserved int // ranks of the jobs in it, known or not
}

type matchEntry struct {
	mac  uint64
	ip   uint32
	rank uint32
	job  *laneJob // nil: the entry is free
}

// Odd multipliers from the golden ratio (Knuth, TAOCP 6.4); the high bits of the product are the good ones.
const (
	hashMAC = 0x9e3779b97f4a7c15
	hashIP  = 0xc2b2ae3d27d4eb4f
)

func hashOf(mac uint64, ip uint32) uint64 {
	h := mac*hashMAC ^ uint64(ip)*hashIP
	return h ^ h>>32
}

// newMatchTable builds a table with room for all workers of the jobs, and for as many again, so that the cost of
// building it is spread over the jobs that come later.
func newMatchTable(jobs []*laneJob) *matchTable {
	n := 0
	for _, j := range jobs {
		n += len(j.workers)
	}
	size := 8
	for size < 4*n {
		size <<= 1
	}
	return &matchTable{entries: make([]matchEntry, size), mask: uint64(size - 1), reserved: n}
}

// fits is true when the workers of another job leave the table at most half full.
func (t *matchTable) fits(workers int) bool { return 2*(t.reserved+workers) <= len(t.entries) }

// remove takes an entry out. The entries behind it move up where they would no longer be found over the gap
// (Knuth, TAOCP 6.4, algorithm R).
func (t *matchTable) remove(mac inet.MAC, ip inet.Addr) {
	m, a := mac.Uint64(), ip.Uint32()
	gap := hashOf(m, a) & t.mask
	for t.entries[gap].mac != m || t.entries[gap].ip != a {
		if t.entries[gap].job == nil {
			return
		}
		gap = (gap + 1) & t.mask
	}
	for i := (gap + 1) & t.mask; t.entries[i].job != nil; i = (i + 1) & t.mask {
		e := &t.entries[i]
		// It may move when its own place is not between the gap and where it stands.
		if home := hashOf(e.mac, e.ip) & t.mask; (i-home)&t.mask >= (i-gap)&t.mask {
			t.entries[gap] = *e
			gap = i
		}
	}
	t.entries[gap] = matchEntry{}
}

func (t *matchTable) insert(mac inet.MAC, ip inet.Addr, rank int, job *laneJob) {
	m, a := mac.Uint64(), ip.Uint32()
	for i := hashOf(m, a) & t.mask; ; i = (i + 1) & t.mask {
		if t.entries[i].job == nil {
			t.entries[i] = matchEntry{mac: m, ip: a, rank: uint32(rank), job: job}
			return
		}
	}
}

// find returns nil for an address of no job.
func (t *matchTable) find(mac uint64, ip uint32) *matchEntry {
	for i := hashOf(mac, ip) & t.mask; ; i = (i + 1) & t.mask {
		e := &t.entries[i]
		if e.job == nil {
			return nil
		}
		if e.mac == mac && e.ip == ip {
			return e
		}
	}
}
