package xdp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hasMultiBuffer tells whether the kernel is to have XDP_USE_SG.
func hasMultiBuffer(t testing.TB) bool {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	release := unix.ByteSliceToString(u.Release[:])
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("kernel release %q: %v", release, err)
	}
	return major > 6 || major == 6 && minor >= 6
}

// wantNoMultiBuffer checks what Open says on a kernel without XDP_USE_SG.
func wantNoMultiBuffer(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "multi-buffer sockets need Linux 6.6") {
		t.Errorf("multi-buffer on a kernel without: %v", err)
	}
}

// Jumbo frames in several pieces: received whole, sent as a chain of a header in one
// chunk and a payload in another; each posted chunk is completed once a post.
func TestMultiBuffer(t *testing.T) {
	r := newRig(t, 1, 9000)
	u := r.umem(UMEMOptions{Chunks: 256, ChunkSize: 4096})
	if !hasMultiBuffer(t) {
		_, err := openIn(r.nic, u, SocketOptions{IfIndex: r.nicIf, MultiBuffer: true})
		wantNoMultiBuffer(t, err)
		return
	}
	rx, st := r.receiver(u, SocketOptions{MultiBuffer: true}, 0, 128)
	tx := r.open(r.peer, u, SocketOptions{IfIndex: r.peerIf, MultiBuffer: true})
	t.Logf("%v, %v", rx.Mode(), st.Mode())
	const size = 8900
	for round := range uint32(100) {
		// Header of 42 bytes and number, then three pieces of payload.
		head := numbered(u, 200*4096, round, 46)
		head.Options = PacketContinues
		pieces := []Desc{head}
		for left, i := size-46, uint64(201); left > 0; i++ {
			n := min(left, 4096)
			d := Desc{Addr: i * 4096, Len: uint32(n), Options: PacketContinues}
			for j := range u.Frame(d) {
				u.Frame(d)[j] = byte(int(i) + j + int(round))
			}
			pieces, left = append(pieces, d), left-n
		}
		pieces[len(pieces)-1].Options = 0
		if n := tx.Transmit(pieces); n != len(pieces) {
			t.Fatalf("posted %d of %d", n, len(pieces))
		}
		if err := tx.Kick(); err != nil {
			t.Fatal(err)
		}
		var frame []byte
		parts, whole := 0, false
		if !drain(t, rx, time.Second, func(d Desc) {
			frame = append(frame, u.Frame(d)...)
			parts++
			whole = !d.Continues()
		}, func() bool { return whole }) {
			s, _ := rx.Statistics()
			p, _ := tx.Statistics()
			t.Fatalf("round %d: %d bytes in %d pieces arrived; %+v %+v", round, len(frame), parts, s, p)
		}
		if len(frame) != size || parts < 2 || number(frame) != round {
			t.Fatalf("round %d: %d bytes in %d pieces, number %d", round, len(frame), parts, number(frame))
		}
		for i, at := 0, 46; at < size; at++ {
			if i = at - 46; frame[at] != byte(201+i/4096+i%4096+int(round)) {
				t.Fatalf("round %d: byte %d is %#x", round, at, frame[at])
			}
		}
		completed := map[uint64]int{}
		reap(t, tx, time.Second, func(a uint64) { completed[a]++ })
		if len(completed) != len(pieces) || completed[200*4096] != 1 || completed[201*4096] != 1 {
			t.Fatalf("completions %v", completed)
		}
	}
}
