package dataplane

import (
	"testing"

	"gradnic/wire/inet"

	"pgregory.net/rapid"
)

// TestMatchAgainstMap compares the table with a map, on addresses that collide often.
func TestMatchAgainstMap(t *testing.T) {
	type key struct {
		mac uint64
		ip  uint32
	}
	rapid.Check(t, func(t *rapid.T) {
		addr := rapid.Custom(func(t *rapid.T) key {
			return key{rapid.Uint64Range(0, 1<<48-1).Draw(t, "mac") & 0xff0000ff, rapid.Uint32().Draw(t, "ip") & 3}
		})
		keys := rapid.SliceOfNDistinct(addr, 0, 100, rapid.ID[key]).Draw(t, "keys")
		jobs := []*laneJob{{workers: make([]laneWorker, 60)}, {workers: make([]laneWorker, 40)}}
		table := newMatchTable(jobs)
		want := map[key]int{}
		for i, k := range keys {
			table.insert(inet.MACFromUint64(k.mac), inet.AddrFromUint32(k.ip), i, jobs[i%2])
			want[k] = i
		}
		for _, k := range keys {
			if rapid.Bool().Draw(t, "removed") {
				table.remove(inet.MACFromUint64(k.mac), inet.AddrFromUint32(k.ip))
				delete(want, k)
			}
		}
		table.remove(inet.MACFromUint64(1), inet.AddrFromUint32(7)) // which was never there
		for _, k := range append(keys, rapid.SliceOfN(addr, 0, 50).Draw(t, "others")...) {
			e := table.find(k.mac, k.ip)
			i, ok := want[k]
			if ok != (e != nil) || ok && (int(e.rank) != i || e.job != jobs[i%2]) {
				t.Fatalf("%v: %+v, want %d %v", k, e, i, ok)
			}
		}
	})
}
