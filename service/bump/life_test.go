package bump

import (
	"testing"

	wire "gradnic/wire/bump"
)

// What is said to, or by, another life than the present one does not count: an answer that a restart of the asker overtook, and a
// good-bye of a life that has been followed by another.
func TestMessagesOfOtherLives(t *testing.T) {
	p := newPair(t, gradRule)
	p.e[0].touch(p.e[0].pathOf(hostMAC[0], hostMAC[1]), hostIP[1])
	state := func() PeerState { return p.e[0].pathOf(hostMAC[0], hostMAC[1]).state }
	hear := func(k wire.Kind, boot, to uint32) {
		t.Helper()
		f := make([]byte, wire.ControlFrameLen)
		wire.PutControl(f, &wire.Header{Dst: hostMAC[0], Src: hostMAC[1], Kind: k, Boot: boot},
			&wire.Control{To: to, Longest: DefaultFrame, Codecs: 2})
		if v, fault := p.e[0].FromWire(f, p.now); v != Taken || fault != wire.OK {
			t.Fatalf("%v: verdict %d, %v", k, v, fault)
		}
	}
	own := p.e[0].o.Boot
	for _, c := range []struct {
		kind     wire.Kind
		boot, to uint32
		want     PeerState
	}{
		{wire.Answer, 77, own + 1, Asking},
		{wire.Bye, 77, 0, Asking},
		{wire.Answer, 77, own, Present},
		{wire.Bye, 76, 0, Present},
		{wire.Bye, 77, 0, Absent},
		{wire.Answer, 78, own - 1, Absent},
		{wire.Answer, 78, own, Present},
	} {
		hear(c.kind, c.boot, c.to)
		if s := state(); s != c.want {
			t.Errorf("%v of life %d to %d (own %d): %v, want %v", c.kind, c.boot, c.to, own, s, c.want)
		}
	}
}
