package xdp

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"

	"gradnic/xdp/bpf"
)

type sumSeat struct {
	id   SumJobID
	rank int
}

// members reads what the program knows of workers.
func sumMembers(t rapid.TB, s *Sums) map[bpf.SteerSumKey]bpf.SteerSumMember {
	t.Helper()
	all := map[bpf.SteerSumKey]bpf.SteerSumMember{}
	var key bpf.SteerSumKey
	var number uint32
	it := s.numbers.Iterate()
	for it.Next(&key, &number) {
		var m bpf.SteerSumMember
		if err := s.members.Lookup(number, &m); err != nil {
			t.Fatal(err)
		}
		if m.Key != key || number == 0 {
			t.Fatalf("%v has number %d, which is %+v", key, number, m)
		}
		all[key] = m
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	free, once := make([]bool, sumNumbers), 0 // no map: there are many, and this is asked often
	for _, n := range s.free {
		if !free[n] {
			once++
		}
		free[n] = true
	}
	if once != len(s.free) || once+len(all) != sumNumbers-1 {
		t.Fatalf("%d numbers are free, %d of them once, beside %d members", len(s.free), once, len(all))
	}
	return all
}

// Jobs come and go: slots are found wherever enough of them in a row are free, no two jobs have the same one, and the program knows
// exactly the members that were set, each with its job's slots. What is refused changes nothing.
func TestSumJobsComeAndGo(t *testing.T) {
	const size = 24
	s := newSums(t, size)
	rapid.Check(t, func(rt *rapid.T) {
		defer func() {
			for id := range maps.Clone(s.all) {
				if err := s.Remove(id); err != nil {
					rt.Error(err)
				}
			}
		}()
		jobs := map[SumJobID]SumJob{}
		seats := map[bpf.SteerSumKey]sumSeat{}
		var generation uint32
		anyID := func() SumJobID {
			if ids := slices.Sorted(maps.Keys(jobs)); len(ids) > 0 && rapid.IntRange(0, 9).Draw(rt, "known") > 0 {
				return rapid.SampledFrom(ids).Draw(rt, "job")
			}
			return SumJobID(rapid.IntRange(-1, MaxSumJobs).Draw(rt, "any job"))
		}
		mustKnow := func(id SumJobID, err error) bool {
			_, known := jobs[id]
			if !known && err == nil {
				rt.Fatalf("there is no job %d", id)
			}
			return known
		}
		rt.Repeat(map[string]func(*rapid.T){
			"install": func(rt *rapid.T) {
				j := SumJob{Workers: rapid.IntRange(1, 5).Draw(rt, "workers"), Elements: 64, Slots: rapid.IntRange(1, size).Draw(rt, "slots")}
				free := make([]bool, size)
				for i := range free {
					free[i] = true
				}
				for _, j := range s.all {
					for i := range j.Slots {
						free[int(j.base)+i] = false
					}
				}
				row, longest := 0, 0
				for _, f := range free {
					row++
					if !f {
						row = 0
					}
					longest = max(longest, row)
				}
				id, err := s.Install(j)
				switch {
				case longest < j.Slots && (!errors.Is(err, ErrNoSumSlots) ||
					!strings.Contains(err.Error(), fmt.Sprintf("%d slots: ", j.Slots)) || !strings.Contains(err.Error(), fmt.Sprintf(" share, %d in a row are free", longest))):
					rt.Fatalf("%d slots, and %d are free in a row: job %d, %v", j.Slots, longest, id, err)
				case longest >= j.Slots && err != nil:
					rt.Fatalf("%d slots, and %d are free in a row: %v", j.Slots, longest, err)
				case err == nil:
					if _, there := jobs[id]; there || id < 0 || id >= MaxSumJobs {
						rt.Fatalf("a new job is number %d", id)
					}
					jobs[id] = j
				}
			},
			"remove": func(rt *rapid.T) {
				id := anyID()
				err := s.Remove(id)
				if !mustKnow(id, err) {
					return
				}
				if err != nil {
					rt.Fatal(err)
				}
				delete(jobs, id)
				maps.DeleteFunc(seats, func(_ bpf.SteerSumKey, at sumSeat) bool { return at.id == id })
			},
			"reset": func(rt *rapid.T) {
				id := anyID()
				if err := s.Reset(id); mustKnow(id, err) && err != nil {
					rt.Fatal(err)
				}
			},
			"member": func(rt *rapid.T) {
				seat := sumSeat{anyID(), rapid.IntRange(-1, 5).Draw(rt, "rank")}
				key := bpf.SteerSumKey{Mac: mac(byte(rapid.IntRange(1, 4).Draw(rt, "MAC"))), Ip: [4]byte{10, 50, 0, byte(rapid.IntRange(1, 2).Draw(rt, "IP"))}}
				err := s.SetMember(seat.id, seat.rank, key.Mac, key.Ip)
				if !mustKnow(seat.id, err) {
					return
				}
				has, taken := seats[key]
				switch legal := seat.rank >= 0 && seat.rank < jobs[seat.id].Workers; {
				case !legal, taken && has != seat:
					if err == nil {
						rt.Fatalf("%v at %v: it is %v there", seat, key, has)
					}
				case err != nil:
					rt.Fatalf("%v at %v: %v", seat, key, err)
				default:
					maps.DeleteFunc(seats, func(_ bpf.SteerSumKey, at sumSeat) bool { return at == seat })
					seats[key] = seat
				}
			},
			"": func(rt *rapid.T) {
				if len(s.all) != len(jobs) {
					rt.Fatalf("%d jobs, want %d", len(s.all), len(jobs))
				}
				owner := map[int]SumJobID{}
				for id, j := range s.all {
					if j.SumJob != jobs[id] || int(j.base)+j.Slots > size {
						rt.Fatalf("job %d: %+v, want %+v", id, j, jobs[id])
					}
					generation = max(generation, j.generation)
					for i := range j.Slots {
						if other, there := owner[int(j.base)+i]; there {
							rt.Fatalf("jobs %d and %d have slot %d", id, other, int(j.base)+i)
						}
						owner[int(j.base)+i] = id
					}
				}
				if generation > s.generation {
					rt.Fatalf("generation %d comes again", generation)
				}
				got := sumMembers(rt, s)
				if len(got) != len(seats) {
					rt.Fatalf("members %v, want %v", got, seats)
				}
				for key, at := range seats {
					m, j := got[key], s.all[at.id]
					if m.Job != uint32(at.id) || int(m.Rank) != at.rank || m.Base != j.base || m.Generation != j.generation || int(m.Slots) != j.Slots || int(m.Workers) != j.Workers || m.Worker != sumWorker(at.id, at.rank) {
						rt.Fatalf("%v is %+v, want %v of %+v", key, m, at, j)
					}
				}
			},
		})
	})
}

// Workers whose addresses end alike are told apart, and one that is gone is nobody.
func TestSumNear(t *testing.T) {
	st, s := summing(t, false)
	id, err := s.Install(SumJob{Workers: 3, Elements: 64, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	mac := [6]byte{2, 0, 0, 0, 0, 7}
	at := [][4]byte{{10, 50, 0, 1}, {10, 54, 0, 1}, {10, 50, 4, 1}}
	frame := func(rank, set int) []byte {
		f := sumFrame(rank, 0, set, make([]int32, 64))
		copy(f[6:], mac[:])
		copy(f[26:], at[rank][:])
		return f
	}
	check := func(what string, set int, want ...Verdict) {
		t.Helper()
		for rank, v := range want {
			if e := sumRun(t, st, frame(rank, set)); e.verdict != v {
				t.Errorf("%s: rank %d: %v, want %v", what, rank, e.verdict, v)
			}
		}
	}
	for rank := range at {
		if err := s.SetMember(id, rank, mac, at[rank]); err != nil {
			t.Fatal(err)
		}
	}
	check("all there", 0, Summed, Summed, TakenUDP)
	if err := s.Reset(id); err != nil {
		t.Fatal(err)
	}
	check("emptied", 0, Summed, Summed, TakenUDP)
	if err := s.SetMember(id, 2, mac, [4]byte{10, 50, 0, 9}); err != nil {
		t.Fatal(err)
	}
	check("the last one moved", 1, Summed, Summed, TakenUDP)
	at[2] = [4]byte{10, 50, 0, 9}
	check("where it is", 1, Repeated, Repeated, TakenUDP)
	if got := sumStatus(t, s, id); got.Results != 2 {
		t.Errorf("%+v", got)
	}
	if err := s.Remove(id); err != nil {
		t.Fatal(err)
	}
	zero := frame(0, 0)
	clear(zero[6:12])
	clear(zero[26:30])
	for name, f := range map[string][]byte{"gone": frame(0, 0), "from the address of zeros": zero} {
		if _, v := judge(t, st, f); v != TakenUDP { // fails too if the frame was changed
			t.Errorf("%s: %v", name, v)
		}
	}
}

// All jobs with all workers fit, and no more; and then any worker can still move.
func TestMostSumJobs(t *testing.T) {
	s := newSums(t, MaxSumJobs+1)
	addresses := func(n int) ([6]byte, [4]byte) {
		return [6]byte{2, 0, 0, 0, byte(n >> 8), byte(n)}, [4]byte{10, 50, 0, 1}
	}
	for n := range MaxSumJobs {
		id, err := s.Install(SumJob{Workers: MaxSumWorkers, Elements: 64, Slots: 1})
		if err != nil {
			t.Fatalf("job %d: %v", n, err)
		}
		for rank := range MaxSumWorkers {
			mac, ip := addresses(n*MaxSumWorkers + rank)
			if err := s.SetMember(id, rank, mac, ip); err != nil {
				t.Fatalf("job %d, rank %d: %v", n, rank, err)
			}
		}
	}
	if id, err := s.Install(SumJob{Workers: 1, Elements: 64, Slots: 1}); !errors.Is(err, ErrNoSumSlots) {
		t.Errorf("one job more: %d, %v", id, err)
	}
	if got := len(sumMembers(t, s)); got != MaxSumJobs*MaxSumWorkers {
		t.Fatalf("%d members", got)
	}
	for _, at := range []sumSeat{{0, 0}, {MaxSumJobs - 1, MaxSumWorkers - 1}, {17, 3}} {
		mac, ip := addresses(MaxSumJobs*MaxSumWorkers + int(at.id))
		if err := s.SetMember(at.id, at.rank, mac, ip); err != nil {
			t.Errorf("%v moves: %v", at, err)
		}
	}
	if err := s.Reset(17); err != nil {
		t.Errorf("a job is emptied: %v", err)
	}
	if err := s.Remove(17); err != nil {
		t.Fatal(err)
	}
	if id, err := s.Install(SumJob{Workers: 1, Elements: 64, Slots: 1}); err != nil || id != 17 {
		t.Errorf("after one is gone: job %d, %v", id, err)
	}
}

func TestSumsRefused(t *testing.T) {
	for _, slots := range []int{-1, MaxSumSlots + 1} {
		if s, err := NewSums(SumsOptions{Slots: slots}); err == nil || !strings.Contains(err.Error(), fmt.Sprint(slots)) {
			t.Errorf("%d slots: %v, %v", slots, s, err)
		}
	}
	s := newSums(t, 20_000)
	for _, c := range []struct {
		job  SumJob
		want string
	}{
		{SumJob{Workers: 0, Elements: 64, Slots: 1}, "0 workers"},
		{SumJob{Workers: MaxSumWorkers + 1, Elements: 64, Slots: 1}, "33 workers"},
		{SumJob{Workers: 1, Elements: 128, Slots: 1}, "128 elements"},
		{SumJob{Workers: 1, Elements: 64, Slots: 0}, "0 slots"},
		{SumJob{Workers: 1, Elements: 64, Slots: 1<<14 + 1}, "16385 slots"}, // no frame can name more
		{SumJob{Workers: 1, Elements: 64, Slots: 1, Tag: MaxSumTag + 1}, "tag 16384"},
	} {
		if _, err := s.Install(c.job); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNoSumSlots) {
			t.Errorf("%+v: %v", c.job, err)
		}
	}
	if len(s.all) != 0 || s.generation != 0 {
		t.Errorf("something was installed: %v", s.all)
	}
	if d, err := NewSums(SumsOptions{}); err != nil || d.size != DefaultSumSlots || d.slots.MaxEntries() != DefaultSumSlots || d.Close() != nil {
		t.Errorf("without a number of slots: %+v, %v", d, err)
	}
}

// The last slot of a job of all that a frame can name, behind another one's.
func TestMostSumSlots(t *testing.T) {
	st := steeringWithSocket(t, false)
	s := newSums(t, 1<<14+3)
	if err := errors.Join(st.SetAddress(nicMAC, nicIP), st.SetPorts(Ports(0xbee0, 0xbeef)), st.SetSums(s)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Install(SumJob{Workers: 1, Elements: 64, Slots: 3}); err != nil {
		t.Fatal(err)
	}
	id := installSum(t, s, SumJob{Workers: 2, Elements: 256, Slots: 1 << 14, Tag: sumTag})
	for _, slot := range []int{0, 1<<14 - 1} {
		sumRun(t, st, sumFrame(0, slot, 1, sumValues(256, 2))).is(t, "first", xdpDrop, Summed, 0)
		sumRun(t, st, sumFrame(1, slot, 1, sumValues(256, 3))).all(t, "last", 256, 5)
	}
	for _, at := range []struct {
		slot uint32
		want uint32
	}{{0, 0}, {2, 0}, {3, 0b11}, {1<<14 + 2, 0b11}} {
		var slot bpf.SteerSumSlot
		if err := s.slots.LookupWithFlags(at.slot, &slot, ebpf.LookupLock); err != nil {
			t.Fatal(err)
		}
		if slot.Version[1].Seen != at.want || slot.Version[0].Seen != 0 {
			t.Errorf("slot %d of the memory: %+v", at.slot, slot.Version[1].Seen)
		}
	}
	if got := sumStatus(t, s, id); got.Results != 2 {
		t.Errorf("%+v", got)
	}
}

// A rank that comes from other addresses keeps what it has contributed, and its old addresses are nobody's.
func TestSumMemberMoves(t *testing.T) {
	st, s := summing(t, false)
	id := installSum(t, s, SumJob{Workers: 2, Elements: 64, Slots: 1, Tag: sumTag})
	other := installSum(t, s, SumJob{Workers: 2, Elements: 64, Slots: 1, Tag: sumTag + 1}, 10)
	values := sumValues(64, 4)
	sumRun(t, st, sumFrame(0, 0, 0, values)).is(t, "rank 0", xdpDrop, Summed, 0)

	mac1, ip1 := sumAddress(1)
	for _, taken := range []sumSeat{{id, 0}, {other, 0}, {other, 1}} {
		if err := s.SetMember(taken.id, taken.rank, mac1, ip1); !errors.Is(err, ebpf.ErrKeyExist) {
			t.Errorf("%v gets the addresses of rank 1: %v", taken, err)
		}
	}
	mac5, ip5 := sumAddress(5)
	for range 2 { // the second time changes nothing
		if err := s.SetMember(id, 0, mac5, ip5); err != nil {
			t.Fatal(err)
		}
	}
	f := put16(40, 0x77)(sumFrame(0, 0, 0, values))
	sumRun(t, st, f).is(t, "the old addresses", xdpRedirect, TakenUDP, 0x77)
	sumRun(t, st, sumFrame(5, 0, 0, values)).is(t, "the new ones, again", xdpDrop, Repeated, 0)
	e := sumRun(t, st, sumFrame(1, 0, 0, values))
	e.is(t, "rank 1", xdpRedirect, TakenUDP, sumMark(SumCompleted))
	e.all(t, "rank 1", 64, 8)
	if got := sumStatus(t, s, id); got.Workers[0].Received != 2 || got.Workers[0].Duplicates != 1 {
		t.Errorf("%+v", got)
	}
	// Somebody else may have them now, with its own tag.
	mac0, ip0 := sumAddress(0)
	if err := s.SetMember(other, 1, mac0, ip0); err != nil {
		t.Fatal(err)
	}
	sumRun(t, st, sumFrame(0, 0, 0, values)).is(t, "another job's", xdpDrop, Summed, 0)
	sumRun(t, st, sumFrame(10, 0, 0, values)).is(t, "another job's", xdpRedirect, TakenUDP, (sumTag+1)<<2|uint16(SumCompleted))
}

// The memory is full of a job's values, exact ones, and another job finds it empty.
func TestSumJobsFindEmptySlots(t *testing.T) {
	st, s := summing(t, false)
	const slots = 1024 // all
	id := installSum(t, s, SumJob{Workers: 3, Elements: 256, Slots: slots, Tag: sumTag})
	for slot := range slots {
		for k := range 3 { // one set complete, the other begun
			sumFeed(t, st, sumFrame(k, slot, 0, sumValues(256, math.MaxInt32)))
		}
		sumFeed(t, st, sumFrame(1, slot, 1, sumValues(256, math.MinInt32)))
	}
	got := sumStatus(t, s, id)
	if got.Results != slots || got.Complete != slots || got.Collecting != slots || got.Wrapped != 256*slots {
		t.Fatalf("%+v", got)
	}
	begin := monotonic(t)
	for _, anew := range []func() error{
		func() error { return s.Reset(id) },
		func() error {
			err := s.Remove(id)
			id = installSum(t, s, SumJob{Workers: 2, Elements: 256, Slots: slots, Tag: sumTag})
			return err
		},
	} {
		if err := anew(); err != nil {
			t.Fatal(err)
		}
		got := sumStatus(t, s, id)
		workers := len(got.Workers)
		if got.Results+got.Resent+got.Wrapped != 0 || got.Collecting+got.Complete != 0 || slices.ContainsFunc(got.Workers, func(w SumWorkerStatus) bool { return w != SumWorkerStatus{} }) {
			t.Fatalf("%+v", got)
		}
		for slot := 0; slot < slots; slot += 100 {
			sumRun(t, st, sumFrame(0, slot, 1, sumValues(256, 1))).is(t, "first", xdpDrop, Summed, 0)
			if since := sumStatus(t, s, id).Workers[1].Since; since < begin {
				t.Fatalf("slot %d has lacked rank 1 since %v, and was begun after %v", slot, since, begin)
			}
			for rank := 1; rank < workers; rank++ {
				e := sumRun(t, st, sumFrame(rank, slot, 1, sumValues(256, 1)))
				if rank == workers-1 {
					e.is(t, "last", xdpRedirect, TakenUDP, sumMark(SumCompleted))
					e.all(t, "last", 256, int32(workers))
				}
			}
		}
		got = sumStatus(t, s, id)
		if got.Results != 11 || got.Complete != 11 || got.Collecting != 0 || got.Sum == 0 {
			t.Fatalf("%+v", got)
		}
	}
}

// A program that has found a worker before its job was emptied, and comes to the slot after others have begun it anew, has
// no part in that.
func TestSumLateProgram(t *testing.T) {
	st, s := summing(t, false)
	id := installSum(t, s, SumJob{Workers: 2, Elements: 64, Slots: 1, Tag: sumTag})
	late := s.all[id].members[0]
	if err := s.Reset(id); err != nil {
		t.Fatal(err)
	}
	sumRun(t, st, sumFrame(1, 0, 0, sumValues(64, 3))).is(t, "anew", xdpDrop, Summed, 0)
	find := func(m sumMember) {
		t.Helper()
		if err := errors.Join(s.numbers.Put(&m.key, m.number), s.near.Put(nearPlace(m.key), m.number)); err != nil {
			t.Fatal(err)
		}
	}
	before := sumStatus(t, s, id)
	find(late)
	for set := range 2 {
		sumRun(t, st, sumFrame(0, 0, set, sumValues(64, 4))).is(t, "late", xdpRedirect, TakenUDP, sumMark(NotJudged))
	}
	if after := sumStatus(t, s, id); !reflect.DeepEqual(before, after) {
		t.Errorf("counted: %+v, before %+v", after, before)
	}
	find(s.all[id].members[0])
	e := sumRun(t, st, sumFrame(0, 0, 0, sumValues(64, 5)))
	e.is(t, "in time", xdpRedirect, TakenUDP, sumMark(SumCompleted))
	e.all(t, "in time", 64, 8)
}
