package host

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/host/nic"
	"gradnic/host/shm"
)

// descriptors is how many this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestGarbage: packets of any bytes and any number of descriptors, before the hello and after it, in place of it, and from many
// connections at once, leave the NIC as it was: the next client is served, and no descriptor stays open.
func TestGarbage(t *testing.T) {
	r := newRig(t, 1, nic.Options{}, nil)
	works(t, r)
	before := descriptors(t)
	rng := rand.New(rand.NewPCG(5, 9))
	packet := func() (b, oob []byte) {
		texts := []string{`{"version":1}`, `{"version":1,"size":12288,"pid":-1}`, `{"op":"reform","nodes":[]}`, `{"op":"status","nodes":[65536]}`, `{"size":-1}`, `{"size":1e99}`, `[]`, `null`, `"`}
		b = []byte(texts[rng.IntN(len(texts))])
		switch rng.IntN(3) {
		case 0:
			b = make([]byte, 1+rng.IntN(shm.PacketMax+100))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
		case 1:
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		}
		if fds := rng.IntN(7); fds > 0 { // more than there may be, too
			var all []int
			for range fds {
				all = append(all, 0)
			}
			oob = unix.UnixRights(all...)
		}
		return b, oob
	}
	for range 300 {
		k := knock(t, r.paths[0])
		if rng.IntN(4) == 0 { // the one before may still be on its way out: then it is garbage to a connection that was refused
			k.make(4096, unix.F_SEAL_SHRINK)
			_ = shm.Send(k.conn, &shm.Hello{Version: shm.Version, Size: shm.ControlBytes + 4096}, k.fds) // closed, when too many are open
		}
		for range 1 + rng.IntN(4) {
			b, oob := packet()
			if _, _, err := k.conn.WriteMsgUnix(b, oob, nil); err != nil {
				break // thrown out
			}
		}
		k.leave()
	}
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			c, err := net.Dial("unixpacket", r.paths[0])
			if err != nil {
				return // the queue of those that wait is full
			}
			time.Sleep(20 * time.Millisecond)
			_ = c.Close()
		})
	}
	all.Wait()
	after := 0
	drained := func() bool {
		after = descriptors(t)
		return after <= before
	}
	for end := time.Now().Add(20 * time.Second); !drained(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors are open, %d were before", after, before)
		}
	}
	works(t, r)
}

// TestListenKeepsFiles: what is at the path and no socket is not replaced.
func TestListenKeepsFiles(t *testing.T) {
	r := newRig(t, 1, nic.Options{}, nil)
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("precious"), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link, dir} {
		if s, err := nic.Listen(path, r.ring.Nodes[0].Ring, nic.Options{}); err == nil || !strings.Contains(err.Error(), "no socket") {
			t.Errorf("%s: %v, %v", path, s, err)
		}
	}
	if b, err := os.ReadFile(link); err != nil || string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
	// A socket that nobody listens on any more is.
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: stale, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := nic.Listen(stale, r.ring.Nodes[0].Ring, nic.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestPiecesDiffer: processes that cut their operations differently are told that they disagree; nobody hangs or gets a sum.
func TestPiecesDiffer(t *testing.T) {
	r := newRig(t, 2, nic.Options{}, nil)
	clients := []*Client{r.dialOne(0, Options{Piece: 1000}), r.dialOne(1, Options{Piece: 999})}
	err := each(clients, func(i int, c *Client) error {
		_, err := c.AllReduce(t.Context(), Request{Data: gradient(i, 5000), Codec: "none"})
		var re *RequestError
		if !errors.As(err, &re) || !strings.Contains(re.Text, "disagrees") {
			t.Errorf("node %d: %v", i, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
