package dataplane

import "gradnic/wire/inet"

// matchTable finds a worker by the source addresses of its frames. It is built beside the lane and never changed.
// Open addressing with linear probing; at most half full, so that a miss ends soon.
type matchTable struct {
	entries []matchEntry
	mask    uint64
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

// newMatchTable builds a table of all known workers of the jobs.
func newMatchTable(jobs []*laneJob) *matchTable {
	n := 0
	for _, j := range jobs {
		n += len(j.workers)
	}
	size := 8
	for size < 2*n {
		size <<= 1
	}
	t := &matchTable{entries: make([]matchEntry, size), mask: uint64(size - 1)}
	return t
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
