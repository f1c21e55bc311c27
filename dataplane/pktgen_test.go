package dataplane

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/pktgen"
)

// pktgenFrame is a frame as the kernel's pktgen makes it.
func pktgenFrame(source byte, number uint32, at time.Time) []byte {
	f := make([]byte, 60)
	n := inet.PutEthernet(f, inet.MAC{6, 0, 0, 0, 0, 0xfe}, inet.MAC{2, 0, 0, 0, 0, source}, inet.EtherTypeIPv4)
	n += inet.PutIPv4(f[n:], inet.IPv4{Proto: inet.ProtoUDP, Src: inet.Addr{10, 9, 0, source}, Dst: inet.Addr{10, 9, 0, 254}, PayloadLen: 60 - n - inet.IPv4Len})
	n += inet.PutUDP(f[n:], inet.UDP{Src: 9, Dst: 9, PayloadLen: 60 - n - inet.UDPLen})
	pktgen.Header{Number: number, Time: at}.Put(f[n:])
	return f
}

// Two senders over two lanes: the sink and the reflector find what was lost, late and twice, over all lanes together.
func TestPktgenAccount(t *testing.T) {
	for _, kind := range []FunctionKind{Sink, Reflect} {
		t.Run(kind.String(), func(t *testing.T) {
			port := NewMemPort("p")
			n, err := New(Config{MAC: inet.MAC{6, 0, 0, 0, 0, 0xfe}, IP: inet.Addr{10, 9, 0, 254}, Lanes: 2}, port)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer n.Stop(t.Context())
			if err := n.SetFunction("p", Function{Kind: kind, Pktgen: true}); err != nil {
				t.Fatal(err)
			}
			at := time.Now().Add(-time.Second)
			send := func(queue int, frame []byte) {
				t.Helper()
				if err := port.SendOn(queue, frame); err != nil {
					t.Fatal(err)
				}
			}
			// Sender 1: 1 to 100 over both lanes in turn, 10 and 11 lost. Sender 2 on one lane: 3 late, 5 twice.
			for i := uint32(1); i <= 100; i++ {
				if i != 10 && i != 11 {
					send(int(i%2), pktgenFrame(1, i, at))
				}
			}
			for _, i := range []uint32{1, 2, 4, 3, 5, 5, 6} {
				send(0, pktgenFrame(2, i, at))
			}
			other := make([]byte, 60)
			send(1, other)
			const frames = 98 + 7 + 1
			waitFor(t, n, func(s *Snapshot) bool { return s.Total.Passed == frames })
			s, err := n.Pktgen("p")
			if err != nil {
				t.Fatal(err)
			}
			if s.Frames != frames-1 || s.Other != 1 || len(s.Streams) != 2 || s.Untracked != 0 {
				t.Fatalf("%+v", s)
			}
			for _, x := range s.Streams {
				want := PktgenStream{MAC: inet.MAC{2, 0, 0, 0, 0, 1}, IP: inet.Addr{10, 9, 0, 1}, Unique: 98, Lost: 2}
				if x.IP[3] == 2 {
					want = PktgenStream{MAC: inet.MAC{2, 0, 0, 0, 0, 2}, IP: inet.Addr{10, 9, 0, 2}, Unique: 6, Duplicates: 1, Reordered: 1}
				}
				if x != want {
					t.Errorf("%+v, want %+v", x, want)
				}
			}
			if l := s.Latency; l == nil || l.Samples != frames-1 || l.P50 < 0.99e6 || l.P50 > 2e6 || l.P99 != 0 || l.P999 != 0 {
				t.Errorf("latency %+v of frames that are a second old", l)
			}
			if err := n.SetFunction("p", Function{Kind: kind}); err != nil {
				t.Fatal(err)
			}
			if _, err := n.Pktgen("p"); err == nil || !strings.Contains(err.Error(), "does not account") {
				t.Errorf("without an account: %v", err)
			}
		})
	}
}

// Numbers that begin anew, with younger stamps, are another run; a packet that comes twice has its old stamp.
func TestPktgenRuns(t *testing.T) {
	a := newPktgenAccount()
	var p inet.Packet
	if inet.Parse(pktgenFrame(1, 1, time.Time{}), &p) != inet.OK {
		t.Fatal("frame")
	}
	start := time.Unix(1_700_000_000, 0)
	for run := range 3 {
		for n := uint32(1); n <= 10; n++ {
			at := start.Add(time.Duration(run)*time.Minute + time.Duration(n)*time.Microsecond)
			if n != 4 { // lost in each run
				a.observe(&p, pktgen.Header{Number: n, Time: at}, at.UnixNano())
			}
			if n == 7 {
				a.observe(&p, pktgen.Header{Number: n, Time: at}, at.UnixNano())
			}
		}
	}
	got := a.past[0]
	got.add(a.streams[0].Counts())
	if want := (PktgenStream{Unique: 27, Lost: 3, Duplicates: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestPktgenSenders(t *testing.T) {
	a := newPktgenAccount()
	var p inet.Packet
	for source := range byte(PktgenStreams + 4) {
		f := pktgenFrame(source+1, 1, time.Time{})
		if inet.Parse(f, &p) != inet.OK {
			t.Fatal("frame")
		}
		h, ok := pktgen.Parse(p.Payload)
		if !ok {
			t.Fatal("header")
		}
		a.observe(&p, h, 0)
	}
	if a.untracked != 4 || a.latency.TotalCount() != 0 {
		t.Errorf("%d untracked, want 4; %d latencies of frames without a stamp", a.untracked, a.latency.TotalCount())
	}
	if got := testing.AllocsPerRun(100, func() { a.observe(&p, pktgen.Header{Number: 5, Time: time.Unix(1, 0)}, 1) }); got != 0 {
		t.Errorf("%v allocations a frame", got)
	}
}

func TestPktgenIsForSinkAndReflect(t *testing.T) {
	n, err := New(Config{MAC: inet.MAC{6}, IP: inet.Addr{10, 9, 0, 254}}, NewMemPort("p"))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.SetFunction("p", Function{Kind: Aggregate, Pktgen: true}); err == nil {
		t.Error("aggregate accounts for pktgen's frames")
	}
}

// An account of nothing is a list of no senders in JSON.
func TestPktgenNothing(t *testing.T) {
	b, err := json.Marshal(pktgenSum(nil))
	if want := `{"frames":0,"other":0,"streams":[],"untracked":0}`; err != nil || string(b) != want {
		t.Errorf("%v %s, want %s", err, b, want)
	}
}
