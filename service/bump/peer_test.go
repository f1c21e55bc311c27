package bump

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	wire "gradnic/wire/bump"
	"gradnic/wire/inet"
)

// sends has host 0 send frames of the rule for a while, one every 5 ms, and returns how many of them arrived.
func (p *pair) sends(d time.Duration, way func(side int, frames [][]byte) [][]byte) (sent, arrived int) {
	r := rand.New(rand.NewPCG(23, 24))
	rule := mustRule(p.t, gradRule)
	for end := p.now + int64(d); p.now < end; {
		f := datagram(0, 1, 9000, uint16(sent), append(make([]byte, 8), gradient(r, 366, false)...))
		p.toHost[1] = nil
		p.host(0, f)
		p.pass(5*time.Millisecond, way)
		sent++
		for _, got := range p.toHost[1] {
			if wire.IsBump(got) || got[12] == 8 && got[13] == 6 {
				continue // a far end without a NIC: its host drops the EtherType; probes are answered by it
			}
			if why := near(f, got, &rule); why != "" {
				p.t.Fatal(why)
			}
			arrived++
		}
	}
	return sent, arrived
}

func (p *pair) kinds(side int) (k []EventKind) {
	for _, e := range p.events[side] {
		k = append(k, e.Kind)
	}
	p.events[side] = nil
	return k
}

func (p *pair) wantEvents(what string, want ...EventKind) {
	p.t.Helper()
	got := p.kinds(0)
	if len(got) != len(want) {
		p.t.Fatalf("%s: events %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			p.t.Fatalf("%s: events %v, want %v", what, got, want)
		}
	}
}

func (p *pair) counters() Counters { return p.e[0].Status().Counters }

// TestFarEndWithoutNIC: nothing is lost, one warning, and compression as soon as there is one.
func TestFarEndWithoutNIC(t *testing.T) {
	p := newPair(t, gradRule)
	p.without[1] = true
	sent, arrived := p.sends(3*time.Second, nil)
	if sent != arrived {
		t.Fatalf("%d of %d arrived", arrived, sent)
	}
	p.wantEvents("nobody there", PeerMissing)
	c := p.counters()
	if c.Raw[RawNoPeer] != uint64(sent) || c.Missing != 1 || c.Compressed.Frames != 0 {
		t.Fatalf("%+v", c)
	}
	p.without[1] = false
	p.host(1, arpFrom(1))
	if sent, arrived = p.sends(time.Second, nil); sent != arrived {
		t.Fatalf("%d of %d arrived", arrived, sent)
	}
	p.wantEvents("there", PeerFound)
	if c := p.counters(); c.Compressed.Frames < 50 {
		t.Fatalf("%+v", c)
	}
}

// TestFarEndDies: without a word it costs the frames of DeadAfter; with a good-bye none.
func TestFarEndDies(t *testing.T) {
	p := newPair(t, gradRule)
	p.meet()
	p.kinds(0)
	p.without[1] = true
	sent, arrived := p.sends(3*time.Second, nil)
	p.wantEvents("it dies", PeerLost)
	lost := sent - arrived
	if c := p.counters(); uint64(lost) != c.Compressed.Frames || c.Lost != 1 || time.Duration(lost)*5*time.Millisecond > DefaultDeadAfter+100*time.Millisecond {
		t.Fatalf("%d of %d arrived, %+v", arrived, sent, c)
	}
	p.without[1] = false
	p.host(1, arpFrom(1))
	p.sends(time.Second, nil)
	p.wantEvents("it is back", PeerFound)

	p.e[1].Close(p.now)
	p.carry(nil)
	p.without[1] = true
	if sent, arrived = p.sends(time.Second, nil); sent != arrived {
		t.Fatalf("after a good-bye %d of %d arrived", arrived, sent)
	}
	p.wantEvents("it leaves", PeerLeft)
}

// TestRestart: either end starts again under traffic; no frame is lost but on the way through the one that restarts.
func TestRestart(t *testing.T) {
	p := newPair(t, gradRule)
	p.meet()
	p.kinds(0)
	p.start(1)
	p.host(1, arpFrom(1))
	if sent, arrived := p.sends(time.Second, nil); sent != arrived {
		t.Fatalf("far end restarted: %d of %d arrived", arrived, sent)
	}
	p.wantEvents("far end restarted", PeerRestarted)
	if c := p.counters(); c.Restarts != 1 || c.Raw.Sum() != 0 {
		t.Fatalf("%+v", c)
	}
	p.start(0)
	if sent, arrived := p.sends(time.Second, nil); sent != arrived {
		t.Fatalf("near end restarted: %d of %d arrived", arrived, sent)
	}
	if c := p.counters(); c.Compressed.Frames < 150 {
		t.Fatalf("%+v", c)
	}
	if c := p.e[1].Status().Counters; c.Gaps != 0 || c.Late != 0 {
		t.Fatalf("a new life's sequence is no gap: %+v", c)
	}
}

// TestSilentStation: the NIC asks for a station that has not sent anything, so that hellos to it are answered.
func TestSilentStation(t *testing.T) {
	p := newPair(t, gradRule)
	p.host(0, datagram(0, 1, 9000, 0, make([]byte, 900)))
	p.pass(5*time.Millisecond, nil)
	var probe []byte
	for _, f := range p.toHost[1] {
		if f[12] == 8 && f[13] == 6 {
			probe = f
		}
	}
	var a inet.ARP
	if probe == nil || inet.ParseARP(probe, &a) != inet.OK || a.Op != inet.ARPRequest || a.TargetIP != hostIP[1] || !a.SenderIP.IsZero() ||
		inet.MAC(probe[:6]) != hostMAC[1] {
		t.Fatalf("no probe, or a wrong one: %+v", a)
	}
	if p.e[0].Status().Peers[0].State == Present {
		t.Fatal("a NIC answered for a station that it has not seen")
	}
	inet.ReplyARP(probe, hostMAC[1], hostIP[1])
	p.host(1, probe)
	p.pass(100*time.Millisecond, nil)
	if p.e[0].Status().Peers[0].State != Present {
		t.Fatal("the station is there now, and still no answer")
	}
}

// TestFloodedHello: a NIC whose host is another one does not answer.
func TestFloodedHello(t *testing.T) {
	p := newPair(t, gradRule)
	other := arpFrom(1)
	copy(other[6:], []byte{2, 0, 0, 0, 9, 9})
	p.host(1, other)
	p.carry(nil)
	sent, arrived := p.sends(2*time.Second, nil)
	if sent != arrived {
		t.Fatalf("%d of %d arrived", arrived, sent)
	}
	p.wantEvents("flooded", PeerMissing)
}

// TestMostHellosLost: a link that loses most of what it is given does not make the far end look dead.
func TestMostHellosLost(t *testing.T) {
	p := newPair(t, gradRule)
	p.meet()
	p.kinds(0)
	r := rand.New(rand.NewPCG(25, 26))
	p.sends(20*time.Second, func(side int, frames [][]byte) [][]byte {
		var left [][]byte
		for _, f := range frames {
			if side == 1 || r.Float64() < 0.5 {
				left = append(left, f)
			}
		}
		return left
	})
	p.wantEvents("half of it lost")
	if c := p.e[1].Status().Counters; c.Gaps < 1000 {
		t.Errorf("%+v", c)
	}
}

// TestLaneStoodStill: a pause of the engine itself is not the far end's death.
func TestLaneStoodStill(t *testing.T) {
	p := newPair(t, gradRule)
	p.meet()
	p.kinds(0)
	p.sends(time.Second, nil)
	p.now += int64(5 * time.Second)
	p.sends(time.Second, nil)
	p.wantEvents("a pause")
}

// TestQuietFlowsCostNothing: hellos end when nothing is sent, and the next frame starts them again without a warning.
func TestQuietFlowsCostNothing(t *testing.T) {
	p := newPair(t, gradRule)
	p.meet()
	p.sends(time.Second, nil)
	p.kinds(0)
	p.pass(11*time.Second, nil)
	before := p.e[1].Status().Counters.Control
	if next := p.e[0].Tick(p.now); next != 0 {
		t.Fatalf("a quiet engine wants to be called in %v", time.Duration(next-p.now))
	}
	p.pass(5*time.Second, nil)
	if after := p.e[1].Status().Counters.Control; after != before {
		t.Fatalf("%d hellos while nothing was sent", after-before)
	}
	sent, arrived := p.sends(time.Second, nil)
	if sent != arrived {
		t.Fatalf("%d of %d arrived", arrived, sent)
	}
	p.wantEvents("it goes on")
	if c := p.counters(); c.Raw[RawNoPeer] > 2 {
		t.Fatalf("%+v", c)
	}
}

func TestPeerLacksCodec(t *testing.T) {
	p := newPair(t, gradRule)
	p.e[1].decodes = 1 << 14
	p.meet()
	if sent, arrived := p.sends(100*time.Millisecond, nil); sent != arrived {
		t.Fatalf("%d of %d arrived", arrived, sent)
	}
	if c := p.counters(); c.Raw[RawCodec] == 0 || c.Compressed.Frames != 0 {
		t.Fatalf("%+v", c)
	}
}

// TestManyPathsAndFlows: more of both than the tables hold; every frame arrives, as it was or within the bound.
func TestManyPathsAndFlows(t *testing.T) {
	p := newPair(t, gradRule)
	rule := mustRule(t, gradRule)
	r := rand.New(rand.NewPCG(27, 28))
	var frames [][]byte
	for i := range 600 {
		f := datagram(0, uint16(i*11+1), 9000, 0, append(make([]byte, 8), gradient(r, 100, false)...))
		f[4], f[5] = byte(i>>8), byte(i)
		frames = append(frames, f)
		there := arpFrom(1)
		copy(there[6:], f[:6])
		p.host(1, there)
	}
	for range 20 {
		p.toHost[1] = nil
		r.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
		sent := map[string][]byte{}
		for k := 0; k < len(frames); k += 50 {
			p.host(0, frames[k:k+50]...)
		}
		for _, f := range frames {
			sent[string(f[:6])] = f
		}
		p.pass(5*time.Millisecond, nil)
		n := 0
		for _, got := range p.toHost[1] {
			if f := sent[string(got[:6])]; f != nil && bytes.Equal(got[12:14], f[12:14]) {
				if why := near(f, got, &rule); why != "" {
					t.Fatal(why)
				}
				n++
			}
		}
		if n < len(frames) {
			t.Fatalf("%d of %d arrived", n, len(frames))
		}
	}
	c := p.counters()
	if c.Paths > maxPaths || c.Compressed.Frames < 1000 {
		t.Errorf("%+v", c)
	}
}
