package xdp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// sumFate is what has to become of a mutated frame.
type sumFate int

const (
	sumAdded     sumFate = iota
	sumMarked            // goes on, with the mark NotJudged; nothing else in it is changed, and nothing counted
	sumUntouched         // is any other's, and not changed
)

func put16(at int, v uint16) func([]byte) []byte { return set(at, byte(v>>8), byte(v)) }

// add16 adds to a field.
func add16(at int, d int) func([]byte) []byte {
	return func(f []byte) []byte { return put16(at, uint16(int(binary.BigEndian.Uint16(f[at:]))+d))(f) }
}

func pad(n int) func([]byte) []byte {
	return func(f []byte) []byte { return append(f, bytes.Repeat([]byte{0xee}, n)...) }
}

// sumFaults is one base frame, of rank 1 of a job of 64 elements and two slots, and one mutation each. taken is the verdict
// with address and ports; with the whole port all are TakenAll.
var sumFaults = []struct {
	name   string
	mutate func([]byte) []byte
	taken  Verdict
	want   sumFate
}{
	{"right", nil, Summed, sumAdded},
	{"right, last port", set(37, 0xef), Summed, sumAdded},
	{"right, another source port", set(34, 0xbe, 0xe0), Summed, sumAdded},
	{"right, bit 14 of the pool index, which nobody looks at", set(48, 0x40), Summed, sumAdded},
	{"right, bit 3 of the first byte, which nobody looks at", set(42, 0x19), Summed, sumAdded},
	{"right, job and packet number", set(43, 1, 2, 3, 4, 5), Summed, sumAdded},
	{"right, padded", pad(4), Summed, sumAdded},
	{"right, padded by a lot", pad(1000), Summed, sumAdded},
	{"right, time to live, class, id, don't fragment, wrong header checksum", set(15, 3, 1, 0x26, 9, 9, 0x40, 0, 1, 17, 7, 7), Summed, sumAdded},
	{"right, reserved bit of the fragment field", set(20, 0x80), Summed, sumAdded},
	{"right, set 1", set(48, 0x80), Summed, sumAdded},
	{"right, last slot", set(49, 1), Summed, sumAdded},

	{"unknown MAC", set(11, 8), TakenUDP, sumUntouched},
	{"MAC of another rank", set(10, 1), TakenUDP, sumUntouched},
	{"unknown IP", set(29, 9), TakenUDP, sumUntouched},
	{"IP of another rank", set(29, 1), TakenUDP, sumUntouched},
	{"no addresses, as nobody's number has", both(set(6, 0, 0, 0, 0, 0, 0), set(26, 0, 0, 0, 0)), TakenUDP, sumUntouched},
	{"port above", put16(36, 0xbef0), TakenUDP, sumUntouched}, // served here, but not SwitchML's
	{"port below", put16(36, 0xbedf), TakenUDP, sumUntouched},
	{"port with its bytes swapped", put16(36, 0xe0be), TakenUDP, sumUntouched},
	{"to another MAC", set(5, 9), PassOther, sumUntouched},
	{"to another IP", set(33, 9), PassOther, sumUntouched},
	{"TCP", set(23, 6), PassProtocol, sumUntouched},
	{"ICMP", set(23, 1), PassProtocol, sumUntouched},
	{"ARP", put16(12, 0x0806), PassOther, sumUntouched},
	{"IPv6", put16(12, 0x86dd), PassIPv6, sumUntouched},
	{"VLAN", tag(0x81000001), PassTagged, sumUntouched},
	{"options", options, PassOptions, sumUntouched},
	{"header length 6 words", set(14, 0x46), PassOptions, sumUntouched},
	{"header length 4 words", set(14, 0x44), PassShort, sumUntouched},
	{"IP version 5", set(14, 0x55), PassShort, sumUntouched},
	{"first fragment", set(20, 0x20), PassFragment, sumUntouched},
	{"later fragment", set(21, 1), PassFragment, sumUntouched},
	{"no headers", cut(41), PassShort, sumUntouched},

	{"message type 0", set(42, 0x01), TakenUDP, sumMarked},
	{"message type 2", set(42, 0x21), TakenUDP, sumMarked},
	{"message type 9", set(42, 0x91), TakenUDP, sumMarked},
	{"size code 0", set(42, 0x10), TakenUDP, sumMarked},
	{"size code 2", set(42, 0x12), TakenUDP, sumMarked},
	{"size code 3 in a frame of 64", set(42, 0x13), TakenUDP, sumMarked},
	{"size code 7", set(42, 0x17), TakenUDP, sumMarked},
	{"a frame of 256 elements", func(f []byte) []byte { return sumFrame(1, 0, 0, sumValues(256, 1)) }, TakenUDP, sumMarked},
	{"a frame of 256 elements with size code 1", func(f []byte) []byte { return set(42, 0x11)(sumFrame(1, 0, 0, sumValues(256, 1))) }, TakenUDP, sumMarked},
	{"UDP length too small by 1", add16(38, -1), TakenUDP, sumMarked},
	{"UDP length too large by 1", add16(38, 1), TakenUDP, sumMarked},
	{"UDP length too large by 4, of a longer packet", both(add16(38, 4), add16(16, 4), pad(4)), TakenUDP, sumMarked},
	{"UDP length 0", put16(38, 0), TakenUDP, sumMarked},
	{"UDP length 8", put16(38, 8), TakenUDP, sumMarked},
	{"UDP length 65535", put16(38, 0xffff), TakenUDP, sumMarked},
	{"IP length beyond the frame", add16(16, 1), TakenUDP, sumMarked},
	{"IP length beyond the datagram", both(add16(16, 4), pad(4)), TakenUDP, sumMarked},
	{"IP length too small by 1", add16(16, -1), TakenUDP, sumMarked},
	{"IP length 0", put16(16, 0), TakenUDP, sumMarked},
	{"IP length 65535", put16(16, 0xffff), TakenUDP, sumMarked},
	{"slot of no job", set(49, 2), TakenUDP, sumMarked},
	{"slot of no job, set 1", set(48, 0x80, 2), TakenUDP, sumMarked},
	{"the last slot that there can be", put16(48, 0x3fff), TakenUDP, sumMarked},
	{"all bits of the pool index", put16(48, 0xffff), TakenUDP, sumMarked},
	{"cut behind the headers", cut(42), TakenUDP, sumMarked},
	{"cut in the message's header", cut(51), TakenUDP, sumMarked},
	{"cut behind the message's header", cut(52), TakenUDP, sumMarked},
	{"cut in the values", cut(200), TakenUDP, sumMarked},
	{"cut by one", cut(307), TakenUDP, sumMarked},
}

// Each frame says in its checksum, by luck or to deceive, what the program says of a result.
func TestSumFaults(t *testing.T) {
	for _, multi := range []bool{false, true} {
		st, s := summing(t, multi)
		if err := st.SetPorts(append(Ports(0xbedf, 0xbef0), 0xe0be)); err != nil {
			t.Fatal(err)
		}
		for _, whole := range []bool{false, true} {
			if err := st.SetWholePort(whole); err != nil {
				t.Fatal(err)
			}
			for _, lie := range []uint16{1, 2, 0, 0xffff, sumMark(SumCompleted), sumMark(SumAnswered)} {
				t.Run(fmt.Sprintf("frags=%t,whole=%t,checksum=%#x", multi, whole, lie), func(t *testing.T) {
					// Something is there that could be changed.
					id := installSum(t, s, SumJob{Workers: 3, Elements: 64, Slots: 2, Tag: sumTag})
					for slot := range 2 {
						sumRun(t, st, sumFrame(0, slot, 0, sumValues(64, 5))).is(t, "before", xdpDrop, Summed, 0)
					}
					for _, c := range sumFaults {
						f := put16(40, lie)(sumFrame(1, 0, 0, sumValues(64, 7)))
						if c.mutate != nil {
							f = c.mutate(f)
							if len(f) > 42 && c.want == sumMarked {
								put16(40, lie)(f)
							}
						}
						before := sumStatus(t, s, id)
						want := sumEnd{xdpPass, c.taken, 0, slices.Clone(f)}
						if whole && c.want != sumAdded {
							want.verdict = TakenAll
						}
						switch {
						case c.want == sumAdded:
							want.action = xdpDrop
						case want.verdict.Taken():
							want.action = xdpRedirect
						}
						if c.want == sumMarked {
							put16(40, sumMark(NotJudged))(want.frame)
						}
						if len(f) >= 42 {
							want.mark = binary.BigEndian.Uint16(want.frame[40:])
						}
						if d := sumRun(t, st, f).differs(want); d != "" {
							t.Errorf("%s: %s", c.name, d)
						}
						after := sumStatus(t, s, id)
						if c.want != sumAdded {
							if !reflect.DeepEqual(before, after) {
								t.Errorf("%s: it was counted: %+v, before %+v", c.name, after, before)
							}
							continue
						}
						if after.Workers[1].Contributed != before.Workers[1].Contributed+1 {
							t.Errorf("%s: %d contributions, before %d", c.name, after.Workers[1].Contributed, before.Workers[1].Contributed)
						}
						// Gone again, so that the next one is new.
						if err := s.Reset(id); err != nil {
							t.Fatal(err)
						}
					}
					if err := s.Remove(id); err != nil {
						t.Fatal(err)
					}
				})
			}
		}
	}
}

// A frame of 1076 bytes and one of 308 cut at any length: it is the last byte that makes it a contribution.
func TestSumCut(t *testing.T) {
	for _, multi := range []bool{false, true} {
		st, s := summing(t, multi)
		for _, elements := range []int{64, 256} {
			id := installSum(t, s, SumJob{Workers: 1, Elements: elements, Slots: 1, Tag: sumTag})
			f := sumFrame(0, 0, 0, sumValues(elements, -1))
			for n := 42; n < len(f); n++ {
				e := sumRun(t, st, f[:n])
				e.is(t, fmt.Sprintf("%d of %d bytes", n, len(f)), xdpRedirect, TakenUDP, sumMark(NotJudged))
				if !bytes.Equal(e.frame[:40], f[:40]) || !bytes.Equal(e.frame[42:], f[42:n]) {
					t.Fatalf("%d of %d bytes: the frame is changed", n, len(f))
				}
			}
			sumRun(t, st, f).is(t, "all of it", xdpRedirect, TakenUDP, sumMark(SumCompleted))
			if got := sumStatus(t, s, id); got.Results != 1 || got.Workers[0].Received != 1 {
				t.Errorf("%+v", got)
			}
			if err := s.Remove(id); err != nil {
				t.Fatal(err)
			}
		}
	}
}
