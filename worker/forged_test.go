package worker_test

import (
	"slices"
	"testing"
	"time"

	"gradnic/wire/switchml"
	"gradnic/worker"
)

// tampering is a link on which frames arrive that the worker must not believe.
type tampering struct {
	worker.FrameLink
	queue [][]byte
	made  int
}

func (l *tampering) Recv(buf []byte, until time.Time) (int, error) {
	if len(l.queue) > 0 {
		n := copy(buf, l.queue[0])
		l.queue = l.queue[1:]
		return n, nil
	}
	n, err := l.FrameLink.Recv(buf, until)
	if err != nil {
		return n, err
	}
	good := slices.Clone(buf[:n])
	for kind := range forgeries {
		if bad := forgeries[kind](slices.Clone(good)); bad != nil {
			l.queue = append(l.queue, bad)
			l.made++
		}
	}
	l.queue = append(l.queue, good, good) // twice: the second must not count
	return copy(buf, l.queue[0]), l.pop()
}

func (l *tampering) pop() error { l.queue = l.queue[1:]; return nil }

// forgeries turn a result into something that is none for this worker now; all
// carry wrong values, so that believing one shows.
var forgeries = []func(f []byte) []byte{
	poke(0, 0x0a),  // to another MAC
	poke(6, 0x0a),  // from another MAC
	poke(12, 0x86), // not IPv4
	poke(12, 0x81), // tagged
	poke(29, 0x01), // from another IP: the third and fourth octets
	poke(33, 0x77), // to another IP
	poke(34, 0x11), // from another port
	poke(37, 0x01), // to another port
	poke(39, 0x20), // UDP length
	poke(42, 0x21), // another message type
	poke(42, 0x13), // another size
	poke(43, 0xee), // another job
	poke(47, 0x10), // a packet far past the end
	poke(45, 0x10), // and one past it by less
	poke(48, 0x3f), // another slot and set
	func(f []byte) []byte { // the other set
		f[48] ^= 0x80
		return spoil(f)
	},
	func(f []byte) []byte { // cut
		return spoil(f)[:len(f)-1]
	},
	func(f []byte) []byte { // four bytes too long by all its lengths
		f[17], f[39] = f[17]+4, f[39]+4
		return append(spoil(f), 0, 0, 0, 0)
	},
	func(f []byte) []byte { // a packet that is not sent yet, with the right slot for it: k+2M
		f[44] += 8
		return spoil(f)
	},
	func([]byte) []byte { return []byte{} },
	func([]byte) []byte { return make([]byte, 60) },
}

func poke(at int, v byte) func([]byte) []byte {
	return func(f []byte) []byte {
		f[at] = v
		return spoil(f)
	}
}

func spoil(f []byte) []byte {
	for i := switchml.ValuesOffset; i < len(f); i++ {
		f[i] = 0x55
	}
	return f
}

func TestForeignFramesAreIgnored(t *testing.T) {
	links := make([]*tampering, 2)
	f := newFabric(t, 2, worker.Config{Elements: 64, Outstanding: 4}, func(r int, l worker.FrameLink) worker.FrameLink {
		links[r] = &tampering{FrameLink: l}
		return links[r]
	})
	for seed := range uint64(3) {
		for r, s := range f.reduceInts(t, 64*40, seed) {
			if s.Foreign < s.Packets*10 || s.Stale < s.Packets*4 || s.Duplicates < s.Packets/2 {
				t.Errorf("rank %d: %d packets, but %d foreign, %d stale and %d duplicate frames", r, s.Packets, s.Foreign, s.Stale, s.Duplicates)
			}
			if s.Received != s.Packets {
				t.Errorf("rank %d: %d results for %d packets", r, s.Received, s.Packets)
			}
		}
		f.reduceFloats(t, 64*40, seed)
	}
	if links[0].made == 0 {
		t.Fatal("nothing was forged")
	}
}
