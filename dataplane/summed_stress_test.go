package dataplane

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// summedRun is what two workers agree on: rank 0 says which packet is the last, before it sends it. Rank 1 cannot be further, as
// each packet needs both.
type summedRun struct {
	stop    atomic.Bool // soon
	packets atomic.Int64
	ends    atomic.Bool // with packets
}

// work is a worker as SwitchML's are: it sends a packet until its result is there, and only then the next one.
func (r *summedRun) work(t *testing.T, w wire, rank, slots int) {
	var b [4096]byte
	for k := 0; ; k++ {
		if rank == 0 {
			r.packets.Store(int64(k) + 1)
			r.ends.Store(r.stop.Load())
		}
		f := request(rank, 64, k%slots, k/slots%2, uint32(k), int32(k*10+rank))
		want := int32(2*k*10 + 1)
		for until := time.Now().Add(30 * time.Second); ; {
			if err := w.Send(f); err != nil {
				t.Error(err)
				return
			}
			if got, ok := summedResult(w, b[:], k); ok {
				if got[0] != want || got[63] != want {
					t.Errorf("rank %d: packet %d is %d, want %d", rank, k, got, want)
				}
				break
			}
			if time.Now().After(until) {
				t.Errorf("rank %d: packet %d has no result", rank, k)
				return
			}
		}
		if r.ends.Load() && r.packets.Load() == int64(k)+1 {
			return
		}
	}
}

// summedResult waits a little for the result of packet k; others' that come late, and what a reflecting port sends back, are left out.
func summedResult(w wire, b []byte, k int) ([]int32, bool) {
	for until := time.Now().Add(5 * time.Millisecond); ; {
		n, err := w.Recv(b, until)
		if err != nil {
			return nil, false
		}
		var p inet.Packet
		if inet.Parse(b[:n], &p) != inet.OK || p.SrcIP != nicIP {
			continue
		}
		v, fault := switchml.Validate(p.Payload)
		if tsi := v.TSI(); fault == switchml.OK && int(tsi[0])|int(tsi[1])<<8 == k {
			return values(b[:n]), true
		}
	}
}

// Results stay right, and come, while ports have other functions in between, in lanes and in the kernel, and while jobs come and go beside.
func TestSummedBesideChanges(t *testing.T) {
	const slots = 4
	l := newVethLab(t, 2, 1, false)
	n := startNIC(t, testConfig(), l.ports()...)
	needNative(t, n)
	install(t, n, summedJob(2, 64, slots))
	var run summedRun
	var work sync.WaitGroup
	for rank, w := range l.wires(t) {
		work.Go(func() { run.work(t, w, rank, slots) })
	}
	other := JobSpec{Name: "other", Workers: 2, Elements: 256, Slots: 16, InKernel: true, Members: []WorkerSpec{{Rank: 0, MAC: workerMAC(8), IP: workerIP(8)}}}
	change := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		time.Sleep(time.Millisecond)
	}
	for i := range 30 {
		f := Function{Kind: Sink}
		if i%3 == 0 {
			f.Kind = Reflect
		}
		f.InKernel = i == 10 || i == 21 // a larger program, for which the verifier takes its time
		port := [...]string{"p0", "p1"}[i%2]
		change("function", n.SetFunction(port, f))
		change("install", n.InstallJob(other))
		change("back", n.SetFunction(port, Function{}))
		change("worker", n.AddWorker("other", WorkerSpec{Rank: 1, MAC: workerMAC(9 + i%2), IP: workerIP(9), Port: 1}))
		change("another worker", n.AddWorker("other", WorkerSpec{Rank: 1, MAC: workerMAC(11), IP: workerIP(9), Port: 0}))
		if i%2 == 0 {
			change("reset", n.ResetJob("other"))
		}
		change("remove", n.RemoveJob("other"))
	}
	run.stop.Store(true)
	work.Wait()
	packets := run.packets.Load()
	if packets < 30 {
		t.Errorf("%d packets beside 30 changes", packets)
	}
	st, err := n.Job("j")
	if err != nil || st.Results != uint64(packets) || st.Status[0].Contributed != uint64(packets) || st.Status[1].Contributed != uint64(packets) || st.Use.Waiting != 0 {
		t.Errorf("%d packets: %+v, %v", packets, st, err)
	}
	check(t, n)
}
