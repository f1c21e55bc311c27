package xdp

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// allowedCPUs are those that the test may run on.
func allowedCPUs(t *testing.T) (cpus []int) {
	t.Helper()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range 64 * len(all) {
		if all.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// onCPU runs f on one CPU, on a thread that is thrown away.
func onCPU(wg *sync.WaitGroup, cpu int, f func() error, fail func(error)) {
	wg.Go(func() {
		runtime.LockOSThread()
		var one unix.CPUSet
		one.Set(cpu)
		err := unix.SchedSetaffinity(0, &one)
		if err == nil {
			err = f()
		}
		if err != nil {
			fail(err)
		}
	})
}

// Frames of all workers come on two CPUs at once, each twice, in any order. Each slot is complete once, with the right sum,
// whoever asks for it gets that sum, wraps are counted exactly, and what the CPUs count adds up.
func TestSumOnSeveralCPUs(t *testing.T) {
	const workers, slots, rounds = 8, 8, 24
	cpus := allowedCPUs(t)
	for _, multi := range []bool{false, true} {
		t.Run(fmt.Sprintf("frags=%t", multi), func(t *testing.T) {
			st, s := summing(t, multi)
			id := installSum(t, s, SumJob{Workers: workers, Elements: 256, Slots: slots, Tag: sumTag})
			var mu sync.Mutex
			var wrapped uint64
			actions := map[uint32]int{}
			for round := range rounds {
				// Values are all positive, so that the sum passes 2^31, 2^31 + 2^32 and so on once each, in whatever order it grows. In every
				// other round none is beyond what halves of a word hold.
				r := rand.New(rand.NewPCG(uint64(round), 3))
				var sums [slots][256]int64
				var frames [][]byte
				for slot := range slots {
					for rank := range workers {
						values := make([]int32, 256)
						for i := range values {
							most := int64(math.MaxInt32)
							if round%2 == 0 {
								most = 1<<28 - 1
							}
							values[i] = int32(r.Int64N(most + 1))
							sums[slot][i] += int64(values[i])
						}
						f := sumFrame(rank, slot, round&1, values)
						frames = append(frames, f, f)
					}
					for _, v := range sums[slot] {
						wrapped += uint64(v+1<<31) >> 32
					}
				}
				r.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
				var completed [slots]int
				var wg sync.WaitGroup
				for k := range 2 {
					mine := frames[k*len(frames)/2 : (k+1)*len(frames)/2]
					onCPU(&wg, cpus[k%len(cpus)], func() error {
						out := make([]byte, 2048)
						for _, f := range mine {
							run := ebpf.RunOptions{Data: f, DataOut: out}
							action, err := st.program.Run(&run)
							if err != nil {
								return err
							}
							mu.Lock()
							actions[action]++
							mu.Unlock()
							if action == xdpDrop {
								continue
							}
							e := sumEnd{action: action, frame: run.DataOut, mark: binary.BigEndian.Uint16(run.DataOut[40:])}
							slot := int(f[49])
							switch e.mark {
							case sumMark(SumCompleted):
								mu.Lock()
								completed[slot]++
								mu.Unlock()
							case sumMark(SumAnswered):
							default:
								return fmt.Errorf("round %d, slot %d: mark %#x", round, slot, e.mark)
							}
							for i, v := range e.values(256) {
								if v != int32(sums[slot][i]) {
									return fmt.Errorf("round %d, slot %d: value %d is %d, want %d", round, slot, i, v, int32(sums[slot][i]))
								}
							}
						}
						return nil
					}, func(err error) { t.Error(err) })
				}
				wg.Wait()
				for slot, n := range completed {
					if n != 1 {
						t.Errorf("round %d: slot %d was completed %d times", round, slot, n)
					}
				}
				if t.Failed() {
					return
				}
			}
			got := sumStatus(t, s, id)
			if got.Results != slots*rounds || got.Wrapped != wrapped || got.Collecting != 0 {
				t.Errorf("%d results, %d wrapped, %d collecting; want %d, %d, 0", got.Results, got.Wrapped, got.Collecting, slots*rounds, wrapped)
			}
			var last, resent uint64
			for rank, w := range got.Workers {
				if w.Received != 2*slots*rounds || w.Contributed != slots*rounds || w.Duplicates != slots*rounds {
					t.Errorf("rank %d: %+v", rank, w)
				}
				last, resent = last+w.Last, resent+w.Resent
			}
			if last != got.Results || resent != got.Resent {
				t.Errorf("workers completed %d and asked for %d of %d results, %d resent", last, resent, got.Results, got.Resent)
			}
			c, err := st.Counters()
			if err != nil {
				t.Fatal(err)
			}
			if c[Summed] != (workers-1)*slots*rounds || c[TakenUDP] != got.Results+got.Resent || c[Repeated] != workers*slots*rounds-got.Resent ||
				uint64(actions[xdpDrop]) != c[Summed]+c[Repeated] || uint64(actions[xdpRedirect]) != c[TakenUDP] {
				t.Errorf("%d summed, %d repeated, %d taken, actions %v; %d results, %d resent", c[Summed], c[Repeated], c[TakenUDP], actions, got.Results, got.Resent)
			}
			t.Logf("%d results, %d resent, %d wrapped", got.Results, got.Resent, got.Wrapped)
		})
	}
}

// A job goes, comes back and is emptied beside traffic on other CPUs: no result has anything of what came before.
func TestSumsChangeBesideTraffic(t *testing.T) {
	const own = 7 // what rank 0 contributes, all the time; the others are ours, and contribute 100 times the round each
	cpus := allowedCPUs(t)
	st, s := summing(t, false)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for slot := range 2 {
		onCPU(&wg, cpus[slot%len(cpus)], func() error {
			f := sumFrame(0, slot, 0, sumValues(64, own))
			out := make([]byte, 2048)
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				run := ebpf.RunOptions{Data: f, DataOut: out}
				action, err := st.program.Run(&run)
				if err != nil {
					return err
				}
				e := sumEnd{action: action, frame: run.DataOut, mark: binary.BigEndian.Uint16(run.DataOut[40:])}
				switch {
				case action == xdpDrop, e.mark == 0, e.mark == sumMark(NotJudged):
					continue
				case e.mark != sumMark(SumCompleted) && e.mark != sumMark(SumAnswered):
					return fmt.Errorf("action %d, mark %#x", action, e.mark)
				}
				for i, v := range e.values(64) {
					if v != e.values(1)[0] || (v-own)%200 != 0 {
						return fmt.Errorf("slot %d: value %d is %d, of more than one round", slot, i, v)
					}
				}
			}
		}, func(err error) { t.Error(err) })
	}
	defer wg.Wait()
	defer close(stop)
	contribute := func(id SumJobID, value int) {
		for rank := 1; rank <= 2; rank++ {
			for slot := range 2 {
				sumFeed(t, st, sumFrame(rank, slot, 0, sumValues(64, int32(value))))
			}
		}
		for until := time.Now().Add(20 * time.Second); sumStatus(t, s, id).Results < 2; {
			if time.Now().After(until) {
				t.Fatalf("%+v", sumStatus(t, s, id))
			}
			runtime.Gosched()
		}
		for slot := range 2 {
			e := sumFeed(t, st, sumFrame(1, slot, 0, sumValues(64, -1)))
			if e.action != xdpRedirect || e.mark != sumMark(SumAnswered) {
				t.Fatalf("action %d, mark %#x", e.action, e.mark)
			}
			e.all(t, "the result", 64, int32(own+2*value))
		}
	}
	for round := range 30 {
		id := installSum(t, s, SumJob{Workers: 3, Elements: 64, Slots: 2, Tag: sumTag})
		contribute(id, 100*round)
		if err := s.Reset(id); err != nil {
			t.Fatal(err)
		}
		for slot := range 2 { // not to be seen again
			sumFeed(t, st, sumFrame(1, slot, 0, sumValues(64, 3)))
		}
		if err := s.Reset(id); err != nil {
			t.Fatal(err)
		}
		contribute(id, 100*round+100)
		if w := sumStatus(t, s, id).Workers; w[1].Contributed != 2 || w[2].Contributed != 2 || w[1].Resent != 2 {
			t.Fatalf("%+v", w)
		}
		if err := s.Remove(id); err != nil {
			t.Fatal(err)
		}
	}
}
