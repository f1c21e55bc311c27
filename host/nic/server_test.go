package nic

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/host/shm"
)

// What a client may do with a node is tested in package host. Here nobody gets as far as the node.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T, o Options) (*Server, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nic.sock")
	s, err := Listen(path, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, path
}

func dial(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// closed fails the test unless the server closes a connection without a word.
func closed(t *testing.T, c *net.UnixConn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v from a connection that is to be closed", n, err)
	}
}

// The socket is its owner's alone, is the only thing that Listen leaves, and goes with the server.
func TestSocket(t *testing.T) {
	s, path := listen(t, Options{})
	st, err := os.Stat(path)
	if err != nil || st.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	if other, err := Listen(path, nil, Options{}); err == nil || !strings.Contains(err.Error(), "somebody listens on "+path) {
		t.Errorf("a second server: %v, %v", other, err)
	}
	c := dial(t, path) // the first is not disturbed
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	closed(t, c)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// Where no socket can be, nothing is left behind.
func TestListenFails(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "none", "nic.sock"), filepath.Join(dir, strings.Repeat("x", 120))} {
		if s, err := Listen(path, nil, Options{}); err == nil || !strings.Contains(err.Error(), "host: listen on "+path) {
			t.Errorf("%s: %v, %v", path, s, err)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// Who is one too many is sent away, and comes in when another has gone. Who has not said who it is within helloTime is sent away
// as well, so a trial that took as long says nothing.
func TestManyConnections(t *testing.T) {
	for range 5 {
		if tryManyConnections(t) {
			return
		}
	}
	t.Fatal("the machine is too busy")
}

func tryManyConnections(t *testing.T) (valid bool) {
	s, path := listen(t, Options{})
	begin := time.Now()
	await := func(conns int) bool {
		for time.Since(begin) < helloTime {
			s.mu.Lock()
			n := len(s.conns)
			s.mu.Unlock()
			if n == conns {
				return true
			}
			time.Sleep(time.Millisecond)
		}
		return false
	}
	var all []*net.UnixConn
	for range maxConns {
		all = append(all, dial(t, path))
	}
	if !await(maxConns) {
		return false
	}
	closed(t, dial(t, path))
	if time.Since(begin) >= helloTime {
		return false // it may have been sent away for its silence
	}
	if err := all[0].Close(); err != nil {
		t.Fatal(err)
	}
	if !await(maxConns - 1) {
		return false
	}
	dial(t, path)
	return await(maxConns)
}

// A client that is refused is told why, and so is the log, with its process.
func TestRefusal(t *testing.T) {
	var log bytes.Buffer // read once the server has ended
	s, path := listen(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	c := dial(t, path)
	if err := shm.Send(c, &shm.Hello{Version: shm.Version + 1}, nil); err != nil {
		t.Fatal(err)
	}
	var a shm.Answer
	if _, err := shm.Receive(c, &a); err != nil || !strings.Contains(a.Error, "this NIC speaks") {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := shm.Receive(c, &a); !errors.Is(err, io.EOF) {
		t.Errorf("after the refusal: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got := log.String(); !strings.Contains(got, "a client was refused") || strings.Contains(got, "pid=-1") {
		t.Errorf("log %q", got)
	}
}

// Who waits for the requests of a process that has ended, and ends itself, does not take the node after them.
func TestEnterNobody(t *testing.T) {
	s, _ := listen(t, Options{})
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "other"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client := dial(t, l.Addr().String())
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.mu.Lock()
	s.busy, s.leaving = 1, true
	s.mu.Unlock()
	entered := make(chan error, 1)
	go func() { entered <- s.enter(c, 0) }()
	select {
	case err := <-entered:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-entered; err == nil || !strings.Contains(err.Error(), "has not waited") {
		t.Error(err)
	}
	s.leave() // and it is not taken now
	if err := s.enter(c, 0); err == nil || s.busy != 0 {
		t.Errorf("%v, process %d has the node", err, s.busy)
	}
}
