package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/host/nic"
	"gradnic/host/shm"
	"gradnic/service/ring"
)

// rogue is a client written by hand, that does what a Client never would.
type rogue struct {
	t    *testing.T
	conn *net.UnixConn
	mem  *shm.Memory
	fds  []int // memory, doorbell, done
	next uint32
}

// knock connects, without a hello.
func knock(t *testing.T, path string) *rogue {
	t.Helper()
	c, err := net.Dial("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	k := &rogue{t: t, conn: c.(*net.UnixConn)}
	_ = k.conn.SetDeadline(time.Now().Add(10 * time.Second))
	t.Cleanup(k.leave)
	return k
}

func (k *rogue) leave() {
	_ = k.conn.Close()
	shm.CloseAll(k.fds)
	k.fds = nil
	if k.mem != nil {
		_ = k.mem.Unmap()
	}
}

// make makes what a hello passes: arena bytes, sealed with these seals.
func (k *rogue) make(arena, seals int) {
	k.t.Helper()
	fd, err := unix.MemfdCreate("rogue", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		k.t.Fatal(err)
	}
	k.fds = append(k.fds, fd)
	if err := unix.Ftruncate(fd, int64(shm.ControlBytes+arena)); err != nil {
		k.t.Fatal(err)
	}
	if k.mem, err = shm.Map(fd, shm.ControlBytes+arena); err != nil {
		k.t.Fatal(err)
	}
	shm.PutHeader(k.mem.Control, uint64(shm.ControlBytes+arena))
	if seals != 0 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			k.t.Fatal(err)
		}
	}
	for range 2 {
		e, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			k.t.Fatal(err)
		}
		k.fds = append(k.fds, e)
	}
}

// hello says it and returns the answer's error.
func (k *rogue) hello(h shm.Hello) string {
	k.t.Helper()
	if err := shm.Send(k.conn, &h, k.fds); err != nil {
		k.t.Fatal(err)
	}
	var a shm.Answer
	if _, err := shm.Receive(k.conn, &a); err != nil {
		k.t.Fatal(err)
	}
	return a.Error
}

// enter is a correct hello.
func (k *rogue) enter(arena int) {
	k.t.Helper()
	k.make(arena, unix.F_SEAL_SHRINK)
	if e := k.hello(shm.Hello{Version: shm.Version, Size: uint64(shm.ControlBytes + arena)}); e != "" {
		k.t.Fatal(e)
	}
}

func (k *rogue) ring(by uint64) error {
	_, err := unix.Write(k.fds[shm.FDDoorbell], binary.NativeEndian.AppendUint64(nil, by))
	return err
}

// post posts a request in its turn.
func (k *rogue) post(w shm.Request) {
	k.t.Helper()
	place := int(k.next % shm.Places)
	if err := w.Put(k.mem.Request(place)); err != nil {
		k.t.Fatal(err)
	}
	k.mem.DoneFlag(place).Store(shm.Open)
	k.next++
	k.mem.Posted().Store(k.next)
	if err := k.ring(1); err != nil && !errors.Is(err, unix.EAGAIN) {
		k.t.Fatal(err)
	}
}

// await waits for the end of the request that was posted last, and returns its error.
func (k *rogue) await() string {
	k.t.Helper()
	place := int((k.next - 1) % shm.Places)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if f := k.mem.DoneFlag(place).Load(); f != shm.Open {
			_, text := shm.ParseResult(k.mem.Result(place))
			if (f == shm.Failed) != (text != "") {
				k.t.Fatalf("flag %d, text %q", f, text)
			}
			return text
		}
	}
	k.t.Fatal("no answer")
	return ""
}

// thrownOut waits until the NIC has closed the connection.
func (k *rogue) thrownOut() {
	k.t.Helper()
	var a shm.Answer
	if _, err := shm.Receive(k.conn, &a); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		k.t.Errorf("not thrown out: %+v, %v", a, err)
	}
}

// works says that the next client is served.
func works(t *testing.T, r *rig) {
	t.Helper()
	clients := r.dial(Options{})
	err := each(clients, func(i int, c *Client) error {
		got := gradient(i, 3000)
		if _, err := c.AllReduce(t.Context(), Request{Data: got, Codec: "none", Deadline: 5 * time.Second}); err != nil {
			return err
		}
		return errors.Join(same(got, ordered(len(clients), 3000, DefaultPiece)), c.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestHelloRefused: what is wrong before the first request.
func TestHelloRefused(t *testing.T) {
	r := newRig(t, 1, nic.Options{MaxBytes: 1 << 27}, nil)
	const arena = 8192
	good := shm.Hello{Version: shm.Version, Size: shm.ControlBytes + arena}
	for _, c := range []struct {
		name, want string
		change     func(k *rogue, h *shm.Hello)
	}{
		{"version", "version 2", func(_ *rogue, h *shm.Hello) { h.Version = 2 }},
		{"no memory", "0 descriptors", func(k *rogue, _ *shm.Hello) { shm.CloseAll(k.fds); k.fds = nil }},
		{"two descriptors", "2 descriptors", func(k *rogue, _ *shm.Hello) { shm.CloseAll(k.fds[2:]); k.fds = k.fds[:2] }},
		{"too small", "bytes of memory", func(_ *rogue, h *shm.Hello) { h.Size = shm.ControlBytes }},
		{"too large", "bytes of memory", func(_ *rogue, h *shm.Hello) { h.Size = 1 << 40 }},
		{"larger than the file", "a memory file of 16384 bytes, not 16385", func(_ *rogue, h *shm.Hello) { h.Size++ }},
		{"not a page", "magic", func(k *rogue, _ *shm.Hello) { k.mem.Control[0] = 'x' }},
		{"another arena", "an arena of 77 bytes", func(k *rogue, _ *shm.Hello) { binary.NativeEndian.PutUint64(k.mem.Control[8:], 77) }},
		{"not an event descriptor", "no others", func(k *rogue, _ *shm.Hello) {
			var p [2]int
			if err := unix.Pipe(p[:]); err != nil {
				t.Fatal(err)
			}
			shm.CloseAll([]int{k.fds[shm.FDDoorbell], p[1]})
			k.fds[shm.FDDoorbell] = p[0]
		}},
		{"memory that is a file", "sealed", func(k *rogue, _ *shm.Hello) {
			f, err := os.CreateTemp(t.TempDir(), "")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.Truncate(shm.ControlBytes + arena); err != nil {
				t.Fatal(err)
			}
			if err := unix.Dup3(int(f.Fd()), k.fds[shm.FDMemory], unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := knock(t, r.paths[0])
			k.make(arena, unix.F_SEAL_SHRINK)
			h := good
			c.change(k, &h)
			got := k.hello(h)
			if c.want == "magic" {
				c.want = "not one of a gradnic client"
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	t.Run("unsealed", func(t *testing.T) {
		k := knock(t, r.paths[0])
		k.make(arena, 0)
		if got := k.hello(good); !strings.Contains(got, "sealed against shrinking") {
			t.Error(got)
		}
	})
	t.Run("not JSON", func(t *testing.T) {
		k := knock(t, r.paths[0])
		if _, err := k.conn.Write([]byte("\x00\xff")); err != nil {
			t.Fatal(err)
		}
		k.thrownOut()
	})
	t.Run("too long", func(t *testing.T) {
		k := knock(t, r.paths[0])
		if _, err := k.conn.Write(make([]byte, shm.PacketMax+1)); err != nil {
			t.Fatal(err)
		}
		k.thrownOut()
	})
	works(t, r)
}

// TestThrownOut: a client that breaks the rules of the ring of requests loses the node.
func TestThrownOut(t *testing.T) {
	r := newRig(t, 2, nic.Options{}, nil)
	t.Run("nine at once", func(t *testing.T) {
		k := knock(t, r.paths[0])
		k.enter(4096)
		k.mem.Posted().Store(shm.Places + 1)
		if err := k.ring(1); err != nil {
			t.Fatal(err)
		}
		k.thrownOut()
	})
	t.Run("back in time", func(t *testing.T) {
		k := knock(t, r.paths[0])
		k.enter(4096)
		k.mem.Posted().Store(^uint32(0))
		if err := k.ring(1); err != nil {
			t.Fatal(err)
		}
		k.thrownOut()
	})
	t.Run("a place twice", func(t *testing.T) {
		k := knock(t, r.paths[0])
		k.enter(4096)
		// The other node hands nothing in, so that the first stays; the ring fails with it, and is formed again.
		for range shm.Places {
			k.post(shm.Request{Elements: 1, Weights: shm.NoWeights, Codec: "none", Deadline: 300 * time.Millisecond})
		}
		time.Sleep(20 * time.Millisecond)
		k.post(shm.Request{Elements: 1, Weights: shm.NoWeights, Codec: "none", Deadline: 300 * time.Millisecond})
		k.thrownOut()
		for end := time.Now().Add(5 * time.Second); r.ring.Nodes[1].Ring.Status().Phase != ring.Failed; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the ring does not fail")
			}
		}
		for _, n := range r.ring.Nodes {
			if err := n.Ring.Reform([]uint16{0, 1}); err != nil {
				t.Fatal(err)
			}
		}
	})
	works(t, r)
}

// TestDescriptors: a client that floods its doorbell, and fills its own descriptor and makes writes to it wait.
func TestDescriptors(t *testing.T) {
	r := newRig(t, 1, nic.Options{}, nil)
	k := knock(t, r.paths[0])
	k.enter(4096)
	for _, fd := range []int{k.fds[shm.FDDoorbell], k.fds[shm.FDDone]} {
		if err := unix.SetNonblock(fd, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := unix.Write(k.fds[shm.FDDone], binary.NativeEndian.AppendUint64(nil, ^uint64(0)-1)); err != nil {
		t.Fatal(err)
	}
	flood := make(chan struct{})
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		for {
			select {
			case <-flood:
				return
			default:
				_ = k.ring(1)
			}
		}
	}()
	start := time.Now()
	for i := range 100 {
		k.mem.Floats(0, 1)[0] = float32(i)
		k.post(shm.Request{Elements: 1, Weights: shm.NoWeights, Codec: "none"})
		if got := k.await(); got != "" || k.mem.Floats(0, 1)[0] != float32(i) {
			t.Fatal(got)
		}
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("100 requests took %v", d)
	}
	close(flood)
	<-flooded
	k.leave()
	works(t, r)
}

// TestTwoClients: the second is told who has the node; one that came and went leaves it free.
func TestTwoClients(t *testing.T) {
	r := newRig(t, 1, nic.Options{}, nil)
	works(t, r)
	k := knock(t, r.paths[0])
	k.enter(4096)
	l := knock(t, r.paths[0])
	l.make(4096, unix.F_SEAL_SHRINK)
	if got := l.hello(shm.Hello{Version: shm.Version, Size: shm.ControlBytes + 4096}); !strings.Contains(got, "has the node") {
		t.Error(got)
	}
	k.post(shm.Request{Elements: 1, Weights: shm.NoWeights, Codec: "none"})
	if got := k.await(); got != "" {
		t.Error(got)
	}
	k.leave()
	works(t, r)
}

// TestKilled: a process that is killed in the middle of eight requests; the next has the node once those have ended.
func TestKilled(t *testing.T) {
	if path := os.Getenv("GRADNIC_HOST_VICTIM"); path != "" {
		c, err := Dial(t.Context(), path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range Places {
			if _, err := c.Start(Request{Data: gradient(0, 5000), Codec: "none", Deadline: 10 * time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = os.Stdout.WriteString("under way\n")
		select {} // to be killed here
	}
	r := newRig(t, 2, nic.Options{}, nil)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), "GRADNIC_HOST_VICTIM="+r.paths[0])
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("under way\n"))); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(5 * time.Second); r.ring.Nodes[0].Ring.Status().Outstanding < Places; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing is under way")
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	// The next one waits while requests use the old memory. They end when node 1 has done its part.
	next := make(chan error, 1)
	go func() {
		c, err := Dial(t.Context(), r.paths[0], Options{})
		if err == nil {
			err = c.Close()
		}
		next <- err
	}()
	select {
	case err := <-next:
		t.Fatalf("too early: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	// One that does not wait so long learns what it would have waited for; one that gives up, that it did.
	short := knock(t, r.paths[0])
	short.make(4096, unix.F_SEAL_SHRINK)
	want := fmt.Sprintf("8 requests of process %d, which is gone", cmd.Process.Pid)
	if got := short.hello(shm.Hello{Version: shm.Version, Size: shm.ControlBytes + 4096, WaitMS: 100}); !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	given, giveUp := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, giveUp)
	if _, err := Dial(given, r.paths[0], Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	c := r.dialOne(1, Options{})
	for range Places {
		got := gradient(1, 5000)
		if _, err := c.AllReduce(t.Context(), Request{Data: got, Codec: "none"}); err != nil {
			t.Fatal(err)
		}
		if err := same(got, ordered(2, 5000, DefaultPiece)); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(<-next, c.Close()); err != nil {
		t.Fatal(err)
	}
	works(t, r)
}

// TestScribble: a client that writes over its buffers while the NIC has them harms nobody's process: requests end, with
// whatever numbers, and afterwards all is well.
func TestScribble(t *testing.T) {
	const n = 40_000
	r := newRig(t, 2, nic.Options{}, nil)
	clients := r.dial(Options{})
	err := each(clients, func(i int, c *Client) error {
		data, err := c.Alloc(n)
		if err != nil {
			return err
		}
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			for {
				select {
				case <-stop:
					return
				default:
				}
				for range 64 { // infinities and NaN among them
					data[rng.IntN(n)] = math.Float32frombits(rng.Uint32())
				}
				time.Sleep(10 * time.Microsecond)
			}
		}()
		for _, codec := range []string{"none", "bfp16", "bfp16-intel", "fp16", "bf16"} {
			for range 4 {
				if _, err := c.AllReduce(t.Context(), Request{Data: data, Codec: codec}); err != nil {
					return err
				}
			}
		}
		close(stop)
		<-stopped
		return errors.Join(c.Free(data), c.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	works(t, r)
}
