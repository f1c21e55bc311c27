package dataplane

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gradnic/internal/captures"
	"gradnic/wire/inet"
	"gradnic/xdp"
)

// summedJob is a job of workers on a port each, which the kernel adds up.
func summedJob(workers, elements, slots int) JobSpec {
	return JobSpec{Name: "j", Workers: workers, Elements: elements, Slots: slots, Members: members(workers, false), InKernel: true}
}

// The recorded session of SwitchML has the same replies, byte for byte, when the kernel adds up; seven of eight of this job's frames
// are two workers', so half of them come to no lane.
func TestSummedCaptures(t *testing.T) {
	for _, elements := range []int{64, 256} {
		for _, lanes := range []int{1, 2} {
			t.Run(fmt.Sprintf("%d/%d-lanes", elements, lanes), func(t *testing.T) {
				l := newVethLab(t, captures.Workers, lanes, false)
				n := startNIC(t, Config{MAC: captures.SwitchMAC(), IP: captures.SwitchIP(), Wait: Interrupt, Lanes: lanes}, l.ports()...)
				needNative(t, n)
				j := capturesJob(elements)
				j.InKernel = true
				for r := range j.Members {
					j.Members[r].Port = r
				}
				install(t, n, j)
				replayCaptures(t, n, elements, l.wires(t))
				s := n.Snapshot()
				if k := summedHere(&s); k == 0 || k < s.Total.Received {
					t.Errorf("%d frames were added up in the kernel, %d came to lanes", k, s.Total.Received)
				}
			})
		}
	}
}

// summedRig is a NIC that adds up in the kernel and one whose lanes do, to compare.
type summedRig struct {
	t     *testing.T
	n     *NIC
	wires []wire
	model *NIC
	mem   []*MemPort
	sent  uint64
}

func newSummedRig(t *testing.T, ports, lanes int, j JobSpec) *summedRig {
	l := newVethLab(t, ports, lanes, false)
	cfg := testConfig()
	cfg.Lanes = lanes
	r := &summedRig{t: t, n: startNIC(t, cfg, l.ports()...)}
	needNative(t, r.n)
	r.wires = l.wires(t)
	cfg.Lanes = 1
	r.model, r.mem = memNIC(t, cfg, ports)
	install(t, r.n, j)
	j.InKernel = false
	install(t, r.model, j)
	return r
}

// send gives both NICs a frame, waits until they have it, and compares what comes out of each port.
func (r *summedRig) send(port int, frame []byte) {
	r.t.Helper()
	mustSend(r.t, r.mem[port], frame)
	if err := r.wires[port].Send(frame); err != nil {
		r.t.Fatal(err)
	}
	r.sent++
	waitReceived(r.t, r.model, r.sent)
	waitFor(r.t, r.n, func(s *Snapshot) bool { return s.Total.Received+summedHere(s) >= r.sent && s.Total.InFlight == 0 })
	m, s := check(r.t, r.model), check(r.t, r.n)
	if m.Total.Replicas != s.Total.Replicas || s.Total.ReplicasDropped() != 0 {
		r.t.Fatalf("frame %d: %d replies, %d when the lanes add up; %+v", r.sent, s.Total.Replicas, m.Total.Replicas, s.Total)
	}
	var a, b [4096]byte
	for p := range r.wires {
		for {
			k, err := r.mem[p].Recv(a[:], time.Now())
			if err != nil {
				break
			}
			got, err := r.wires[p].Recv(b[:], time.Now().Add(5*time.Second))
			if err != nil || !bytes.Equal(a[:k], b[:got]) {
				r.t.Fatalf("frame %d: reply at port %d: %v\n%x, when the lanes add up\n%x", r.sent, p, err, b[:got], a[:k])
			}
		}
	}
}

// status compares the states of the job in both NICs, but for times.
func (r *summedRig) status() JobStatus {
	r.t.Helper()
	got, err := r.n.Job("j")
	if err != nil {
		r.t.Fatal(err)
	}
	want, err := r.model.Job("j")
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range got.Status {
		g, w := got.Status[i], want.Status[i]
		if g.MissingSince.IsZero() != w.MissingSince.IsZero() || g.LastSeen.IsZero() != w.LastSeen.IsZero() ||
			!g.LastSeen.IsZero() && (time.Since(g.LastSeen) < 0 || time.Since(g.LastSeen) > time.Minute) ||
			!g.MissingSince.IsZero() && (time.Since(g.MissingSince) < 0 || time.Since(g.MissingSince) > time.Minute) {
			r.t.Errorf("rank %d: last seen %v, missing since %v; when the lanes add up %v, %v", i, g.LastSeen, g.MissingSince, w.LastSeen, w.MissingSince)
		}
		g.LastSeen, g.MissingSince, w.LastSeen, w.MissingSince = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		if g != w {
			r.t.Errorf("rank %d: %+v\nwhen the lanes add up %+v", i, g, w)
		}
	}
	if got.Use != want.Use || got.Results != want.Results || got.Resent != want.Resent || got.Wrapped != want.Wrapped ||
		got.Times.Count() != want.Times.Count() || !slices.Equal(got.Missing, want.Missing) {
		r.t.Errorf("%d results, %d resent, %d wrapped, %d times, missing %v, %+v; when the lanes add up %d, %d, %d, %d, %v, %+v",
			got.Results, got.Resent, got.Wrapped, got.Times.Count(), got.Missing, got.Use,
			want.Results, want.Resent, want.Wrapped, want.Times.Count(), want.Missing, want.Use)
	}
	return got
}

// What goes out is the same, byte for byte, whether the kernel adds up or the lanes: results, results that are asked for
// again, and nothing else; and so is the state of the job.
func TestSummedReplies(t *testing.T) {
	for _, c := range []struct {
		name            string
		ports, elements int
		multicast       *MulticastSpec
	}{
		{"unicast, a port each", 3, 64, nil},
		{"unicast, a port each, 256", 3, 256, nil},
		{"unicast, one port", 1, 256, nil},
		{"multicast", 1, 256, &MulticastSpec{MAC: inet.MAC{1, 0, 0x5e, 1, 2, 3}, IP: inet.Addr{239, 1, 2, 3}, Ports: []int{0}}},
		{"multicast to a UDP port", 1, 64, &MulticastSpec{MAC: inet.MAC{1, 0, 0x5e, 1, 2, 3}, IP: inet.Addr{239, 1, 2, 3}, Port: 77, Ports: []int{0}}},
		{"multicast by two ports", 3, 64, &MulticastSpec{MAC: inet.MAC{1, 0, 0x5e, 1, 2, 3}, IP: inet.Addr{239, 1, 2, 3}, Ports: []int{0, 2}}},
	} {
		for _, lanes := range []int{1, 2} {
			if lanes == 2 && (c.ports == 1 || c.elements == 256) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d-lanes", c.name, lanes), func(t *testing.T) {
				const workers, slots = 3, 7
				j := summedJob(workers, c.elements, slots)
				for i := range j.Members {
					j.Members[i].Port %= c.ports
				}
				j.Multicast = c.multicast
				r := newSummedRig(t, c.ports, lanes, j)
				frame := func(rank, slot, round int) []byte {
					value := int32(round*1000 + slot*10 + rank)
					if slot == 5 {
						value = 1 << 30 // three of them wrap
					}
					return request(rank, c.elements, slot, round%2, uint32(round), value)
				}
				for round := range 4 {
					for slot := range slots {
						for k := range workers {
							rank := (k + slot) % workers
							if round == 3 && slot == 6 && k == 2 {
								continue // stays without its last
							}
							r.send(rank%c.ports, frame(rank, slot, round))
							if slot == 2 || slot == 3 && k == 2 { // once more: before it is complete, and after
								r.send(rank%c.ports, frame(rank, slot, round))
							}
						}
					}
				}
				st := r.status()
				if st.Times.Sum <= 0 || st.Times.Sum > time.Minute {
					t.Errorf("the results took %v together", st.Times.Sum)
				}
				if st.Results != 4*slots-1 || st.Resent != 8 || st.Wrapped == 0 || !slices.Equal(st.Missing, []int{2}) {
					t.Errorf("%d results, %d resent, %d wrapped, missing %v", st.Results, st.Resent, st.Wrapped, st.Missing)
				}
				if err := r.n.ResetJob("j"); err != nil {
					t.Fatal(err)
				}
				if err := r.model.ResetJob("j"); err != nil {
					t.Fatal(err)
				}
				r.status()
				for rank := range workers {
					r.send(rank%c.ports, frame(rank, 6, 1))
				}
				if st := r.status(); st.Results != 1 {
					t.Errorf("after a reset: %+v", st)
				}
			})
		}
	}
}

// A worker that comes back with other addresses goes on where it was; its old ones are nobody's.
func TestSummedWorkerMoves(t *testing.T) {
	r := newSummedRig(t, 1, 1, func() JobSpec {
		j := summedJob(2, 64, 4)
		j.Members = j.Members[:1]
		return j
	}())
	r.send(0, request(1, 64, 0, 0, 0, 1)) // not known yet
	for _, w := range []WorkerSpec{
		{Rank: 1, MAC: workerMAC(1), IP: workerIP(1), Port: -1},
		{Rank: 1, MAC: workerMAC(2), IP: workerIP(2), Port: -1},
	} {
		for _, n := range []*NIC{r.n, r.model} {
			if err := n.AddWorker("j", w); err != nil {
				t.Fatal(err)
			}
		}
		at := int(w.MAC[5])
		r.send(0, request(at, 64, 1, 0, 0, 5))
	}
	r.send(0, request(1, 64, 2, 0, 0, 5)) // its old addresses
	r.send(0, request(0, 64, 1, 0, 0, 6))
	s := check(t, r.n)
	if s.Total.Drops["unknown-worker"] != 2 || s.Total.Results != 1 || s.Total.Resent != 0 {
		t.Errorf("%+v", s.Total)
	}
	if err := r.n.AddWorker("j", WorkerSpec{Rank: 0, MAC: workerMAC(2), IP: workerIP(2), Port: -1}); err == nil || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("addresses of another rank: %v", err)
	}
	if st, err := r.n.Job("j"); err != nil || len(st.Members) != 2 || st.Members[1].MAC != workerMAC(2) {
		t.Errorf("%+v, %v", st, err)
	}
	if err := r.n.RemoveJob("j"); err != nil {
		t.Fatal(err)
	}
	if err := r.wires[0].Send(request(0, 64, 1, 0, 0, 6)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, r.n, func(s *Snapshot) bool { return s.Total.Drops["unknown-worker"] == 3 })
	install(t, r.n, summedJobOnOnePort(2))
	if st, err := r.n.Job("j"); err != nil || st.Use.InUse != 0 || st.Status[0].Received != 0 {
		t.Errorf("installed again: %+v, %v", st, err)
	}
}

func summedJobOnOnePort(workers int) JobSpec {
	j := summedJob(workers, 64, 4)
	for i := range j.Members {
		j.Members[i].Port = -1 // there is one
	}
	return j
}

// A frame that no summing program has looked at is no result, whatever its UDP checksum says.
func TestSummedForged(t *testing.T) {
	l := newVethLab(t, 1, 1, false)
	n := startNIC(t, testConfig(), l.ports()...)
	install(t, n, summedJobOnOnePort(1))
	w := l.wires(t)[0]
	var want uint64
	forge := func() {
		t.Helper()
		for mark := range uint16(4) {
			f := request(0, 64, 0, 0, 0, 1)
			binary.BigEndian.PutUint16(f[summedMark:], mark)
			if err := w.Send(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.mu.Lock()
	tag := n.jobs["j"].summed.tag
	err := n.ports[0].open.sums(nil)
	n.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	forge()
	want = 4
	if tag == 0 {
		want -= 2 // one time in 16384 the sender guesses right
	}
	waitFor(t, n, func(s *Snapshot) bool { return s.Total.Received == 4 })
	if s := check(t, n); s.Total.Drops["not-summed"] != want {
		t.Errorf("%+v", s.Total)
	}
	n.mu.Lock()
	err = n.giveSums()
	n.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	forge() // now the program says what they are: a result, and three times the same again
	s := waitFor(t, n, func(s *Snapshot) bool { return s.Total.Received == 8 })
	if s.Total.Results != 4-want+1 && s.Total.Resent != 4-want+3 || s.Total.Drops["not-summed"] != want {
		t.Errorf("%+v", s.Total)
	}
	// What its job does not have is the lane's to name.
	if err := w.Send(request(0, 256, 0, 0, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Send(request(0, 64, 4, 0, 0, 1)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, n, func(s *Snapshot) bool {
		return s.Total.Drops["wrong-size"] == 1 && s.Total.Drops[slotOutOfRange.String()] == 1
	})
}

// A port with another function adds nothing up, and does again with the old one; a netdev that was made again finds the slots as they were.
func TestSummedLife(t *testing.T) {
	l := newVethLab(t, 1, 1, false)
	n := startNIC(t, testConfig(), l.ports()...)
	install(t, n, summedJobOnOnePort(2))
	if err := l.wires(t)[0].Send(request(0, 64, 0, 0, 0, 1)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, n, func(s *Snapshot) bool { return summedHere(s) == 1 })
	if err := n.SetFunction("p0", Function{Kind: Sink}); err != nil {
		t.Fatal(err)
	}
	if err := l.wires(t)[0].Send(request(1, 64, 0, 0, 0, 1)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, n, func(s *Snapshot) bool { return s.Total.Passed == 1 })
	if err := n.SetFunction("p0", Function{Kind: Aggregate}); err != nil {
		t.Fatal(err)
	}
	waitState(t, n, 0, StateUp, "")
	l.delete(t, 0)
	waitState(t, n, 0, StateDown, "does not exist")
	l.create(t, 0, 1)
	waitState(t, n, 0, StateUp, "")
	if err := l.wires(t)[0].Send(request(1, 64, 0, 0, 0, 2)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, n, func(s *Snapshot) bool { return s.Total.Results == 1 })
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	st, err := n.Job("j")
	if err != nil || st.Results != 1 || st.Status[0].Contributed != 1 || st.Status[1].Contributed != 1 || st.Use.Complete != 1 {
		t.Errorf("after the end: %+v, %v", st, err)
	}
	if err := n.RemoveJob("j"); err != nil { // as one that the lanes add up
		t.Error(err)
	}
}

// Two queues, and workers that come in by either: the slots are one.
func TestSummedQueues(t *testing.T) {
	const workers, slots, rounds = 4, 32, 20
	l := newVethLab(t, 1, 2, false)
	cfg := testConfig()
	cfg.Lanes = 2
	n := startNIC(t, cfg, l.ports()...)
	j := summedJob(workers, 64, slots)
	for i := range j.Members {
		j.Members[i].Port = 0
	}
	install(t, n, j)
	w := l.wires(t)[0]
	var sent uint64
	for round := range rounds {
		for slot := range slots {
			for rank := range workers {
				f := request(rank, 64, slot, round%2, 0, int32(round+rank))
				binary.BigEndian.PutUint16(f[34:], uint16(4000+slot+rank*round)) // which queue a veth chooses by
				if err := w.Send(f); err != nil {
					t.Fatal(err)
				}
				sent++
			}
		}
		waitFor(t, n, func(s *Snapshot) bool { return s.Total.Received+summedHere(s) == sent && s.Total.InFlight == 0 })
		buf := make([]byte, 2048)
		for range slots * workers {
			k, err := w.Recv(buf, time.Now().Add(5*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			if v := values(buf[:k]); v[0] != int32(workers*round+6) || v[63] != v[0] {
				t.Fatalf("round %d: %v", round, v)
			}
		}
	}
	s := check(t, n)
	if s.Total.Results != rounds*slots {
		t.Errorf("%+v", s.Total)
	}
}

func TestSummedRefused(t *testing.T) {
	mem, err := New(testConfig(), NewMemPort("m"))
	if err != nil {
		t.Fatal(err)
	}
	l := newVethLab(t, 2, 1, false)
	n := startNIC(t, testConfig(), l.ports()...)
	for _, c := range []struct {
		on   *NIC
		edit func(*JobSpec)
		want string
	}{
		{mem, func(j *JobSpec) { j.Members = nil }, "no netdev"},
		{n, func(j *JobSpec) { j.Protocol, j.Native = ProtocolNative, &NativeSpec{} }, "without a layout"},
		{n, func(j *JobSpec) { j.Layout = "x" }, "without a layout"},
		{n, func(j *JobSpec) { j.Members[1].Port = -1 }, "rank 1: its port must be given"},
	} {
		j := summedJob(1, 64, 4)
		j.Members = members(2, false)
		j.Workers = 2
		c.edit(&j)
		if err := c.on.InstallJob(j); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", j, err, c.want)
		}
	}
	if jobs := n.Jobs(); len(jobs) != 0 {
		t.Errorf("what was refused is there: %+v", jobs)
	}
	if err := n.Impair("p0", Impairment{IngressLoss: 0.5}); err != nil {
		t.Fatal(err)
	}
	if err := n.InstallJob(summedJob(2, 64, 4)); err == nil || !strings.Contains(err.Error(), "impaired") {
		t.Errorf("with an impairment: %v", err)
	}
	if err := n.Impair("p0", Impairment{}); err != nil {
		t.Fatal(err)
	}
	if err := n.SetPace(1e9); err != nil {
		t.Fatal(err)
	}
	if err := n.InstallJob(summedJob(2, 64, 4)); err == nil || !strings.Contains(err.Error(), "pace") {
		t.Errorf("with a pace: %v", err)
	}
	if err := n.SetPace(0); err != nil {
		t.Fatal(err)
	}
	install(t, n, summedJob(2, 64, 4))
	large := JobSpec{Name: "large", Workers: 2, Elements: 256, Slots: MaxSlots, InKernel: true}
	install(t, n, large) // as many as a job can have, beside another
	large.Name = "larger"
	if err := n.InstallJob(large); !errors.Is(err, xdp.ErrNoSumSlots) {
		t.Errorf("more slots than there are left: %v", err)
	}
	if err := n.Impair("p1", Impairment{IngressLoss: 0.5}); err == nil || !strings.Contains(err.Error(), "job j") {
		t.Errorf("an impairment beside it: %v", err)
	}
	if err := n.SetPace(1e9); err == nil || !strings.Contains(err.Error(), "job j") {
		t.Errorf("a pace beside it: %v", err)
	}
	if err := n.AddWorker("j", WorkerSpec{Rank: 0, MAC: workerMAC(7), IP: workerIP(7), Port: -1}); err == nil || !strings.Contains(err.Error(), "port must be given") {
		t.Errorf("a worker without a port: %v", err)
	}
}
