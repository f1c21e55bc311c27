package control

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSplitAddress(t *testing.T) {
	for address, want := range map[string]string{
		"/run/x.sock": "unix /run/x.sock", "unix:/run/x.sock": "unix /run/x.sock", "unix:///run/x.sock": "unix /run/x.sock",
		"tcp://127.0.0.1:5": "tcp 127.0.0.1:5", "tcp://[::1]:5": "tcp [::1]:5",
	} {
		network, where, err := SplitAddress(address)
		if got := network + " " + where; err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", address, got, err, want)
		}
	}
	// TCP must be asked for in so many letters, and an address that is neither is no file name.
	for _, address := range []string{"", "unix:", "127.0.0.1:50051", "tcp://nowhere", "/" + strings.Repeat("x", 108)} {
		if network, where, err := SplitAddress(address); err == nil {
			t.Errorf("%q is %s %s", address, network, where)
		}
	}
}

func TestListenUnix(t *testing.T) {
	old := syscall.Umask(0) // the worst case: nothing is taken away
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "sub", "api.sock")
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	// In use: refused, and the one who uses it is not disturbed.
	if _, err := Listen(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another gradnic") {
		t.Errorf("second listener: %v", err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the first listener was disturbed: %v", err)
	}
	c.Close()
	l.Close()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there after close: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory that was made for it is still there: %v", err)
	}
	// One that was there before, or that has something else, stays.
	for _, file := range []string{"", "other"} {
		dir := filepath.Join(t.TempDir(), "sub")
		if file == "" {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		l, err := Listen(t.Context(), filepath.Join(dir, "api.sock"))
		if err != nil {
			t.Fatal(err)
		}
		if file != "" {
			if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l.Close()
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the directory is gone: %v", err)
		}
	}
}

func TestListenReplacesStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	// What kill -9 leaves behind: a bound socket file without a listener.
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the test made no stale socket: %v", err)
	}
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// A process that was killed lets go of its addresses a moment later: that is waited for.
func TestListenWaitsForTheDying(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unix, err := net.Listen("unix", filepath.Join(t.TempDir(), "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	unix.(*net.UnixListener).SetUnlinkOnClose(false)
	for address, dying := range map[string]net.Listener{"tcp://" + tcp.Addr().String(): tcp, unix.Addr().String(): unix} {
		let := time.AfterFunc(150*time.Millisecond, func() { dying.Close() })
		l, err := Listen(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if let.Stop() {
			t.Errorf("%s: two listen on it", address)
		}
		l.Close()
	}
	// Who does not die is waited for in vain, and named as far as one can.
	alive, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	begin := time.Now()
	if _, err := Listen(t.Context(), "tcp://"+alive.Addr().String()); err == nil || !strings.Contains(err.Error(), "stop who listens there") {
		t.Errorf("in use: %v", err)
	}
	if d := time.Since(begin); d < inUseTimeout/2 || d > 10*inUseTimeout {
		t.Errorf("waited %v", d)
	}
}

func TestListenLeavesOtherFilesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file is %q, %v", b, err)
	}
}

func TestListenTCP(t *testing.T) {
	l, err := Listen(t.Context(), "tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Addr().Network() != "tcp" {
		t.Errorf("network %s", l.Addr().Network())
	}
}
