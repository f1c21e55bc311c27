package nic

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/host/shm"
	"gradnic/service/ring"
)

// The card's eight requests are the ring's.
var _ = [1]struct{}{}[shm.Places-ring.Outstanding]

// DefaultMaxBytes is the most shared memory that a NIC maps for its host.
const DefaultMaxBytes = 8 << 30

// Options are a server's.
type Options struct {
	// MaxBytes is the most memory that a client may bring; 0: DefaultMaxBytes.
	MaxBytes int64
	// Logger takes what happens to clients; nil discards.
	Logger *slog.Logger
}

// Server lets one process at a time use a node of a ring.
type Server struct {
	node *ring.Node
	opt  Options
	path string
	l    *net.UnixListener
	wg   sync.WaitGroup

	mu      sync.Mutex
	conns   map[*net.UnixConn]bool
	busy    int  // PID of the client that has the node, 0 for none
	leaving bool // it is gone, but its requests are not done
	closed  bool
}

// Listen makes a socket at path, mode 0600 in a directory that must exist, and serves the node to whoever may open it. A
// socket that nobody listens on any more is replaced; one that somebody does is an error, and so is anything else at path.
func Listen(path string, node *ring.Node, o Options) (*Server, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("host: listen on %s: it is there and no socket", path)
	}
	if c, err := net.Dial("unixpacket", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("host: somebody listens on %s already", path)
	}
	// Made under another name and renamed: nobody can connect before the mode is right.
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d", filepath.Base(path), os.Getpid()))
	if len(temp) > shm.MaxPath {
		return nil, fmt.Errorf("host: listen on %s: a path of %d bytes is too long for a socket, which may have %d with %s", path, len(path), shm.MaxPath, filepath.Base(temp))
	}
	_ = os.Remove(temp)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: temp, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("host: listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(temp, 0o600), os.Rename(temp, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("host: listen on %s: %w", path, err), l.Close(), os.Remove(temp))
	}
	s := &Server{node: node, opt: o, path: path, l: l, conns: map[*net.UnixConn]bool{}}
	s.wg.Add(1)
	go s.accept()
	return s, nil
}

// Close ends the connections and waits until no request of a client uses shared memory any more. Requests that others keep
// waiting run until their deadline: close the node first to end them. It is idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	err := s.l.Close()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	_ = os.Remove(s.path)
	if err != nil {
		return fmt.Errorf("host: close %s: %w", s.path, err)
	}
	return nil
}

// maxConns is how many may be connected, most of which are refused or wait.
const maxConns = 64

func (s *Server) accept() {
	defer s.wg.Done()
	for {
		c, err := s.l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors, for one
			s.opt.Logger.Warn("host: accept", "err", err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		s.mu.Lock()
		if s.closed || len(s.conns) >= maxConns {
			s.mu.Unlock()
			_ = c.Close()
			continue // when closed, the next accept says so
		}
		s.conns[c] = true
		s.wg.Add(1)
		s.mu.Unlock()
		go s.serve(c)
	}
}

// helloTime bounds how long a connection may take to say who it is.
const helloTime = 5 * time.Second

func (s *Server) serve(c *net.UnixConn) {
	defer s.wg.Done()
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	_ = c.SetDeadline(time.Now().Add(helloTime))
	var h shm.Hello
	fds, err := shm.Receive(c, &h)
	if err != nil {
		return
	}
	_ = c.SetDeadline(time.Time{})
	k, err := s.welcome(c, &h, fds)
	if err != nil {
		s.opt.Logger.Warn("host: a client was refused", "pid", peerPID(c), "err", err)
		_ = shm.Send(c, &shm.Answer{Error: err.Error()}, nil)
		return
	}
	defer s.leave()
	defer func() {
		s.mu.Lock()
		s.leaving = true
		s.mu.Unlock()
		k.end()
	}()
	k.wg.Add(1)
	go k.take()
	go k.tell()
	a := s.status()
	if shm.Send(c, &a, nil) != nil {
		return
	}
	pid := peerPID(c)
	s.opt.Logger.Info("host: a client has the node", "pid", pid, "bytes", h.Size)
	defer func() {
		s.opt.Logger.Info("host: the client has left", "pid", pid, "outstanding", s.node.Status().Outstanding)
	}()
	for {
		var q shm.Ask
		fds, err := shm.Receive(c, &q)
		shm.CloseAll(fds)
		if err != nil {
			return
		}
		a := s.answer(&q)
		if shm.Send(c, &a, nil) != nil {
			return
		}
	}
}

func (s *Server) status() shm.Answer {
	st := s.node.Status()
	a := shm.Answer{Node: s.node.Number(), Nodes: st.Nodes, Phase: st.Phase.String(), Generation: st.Generation, Outstanding: st.Outstanding}
	if err := cmp.Or(st.Failure, st.Refused); err != nil {
		a.Failure = err.Error()
	}
	return a
}

func (s *Server) answer(q *shm.Ask) shm.Answer {
	switch q.Op {
	case "status":
		return s.status()
	case "reform":
		if err := s.node.Reform(q.Nodes); err != nil {
			return shm.Answer{Error: err.Error()}
		}
		return s.status()
	}
	return shm.Answer{Error: fmt.Sprintf("operation %q: legal are status and reform", q.Op)}
}

// welcome maps a client's memory. It owns the descriptors.
func (s *Server) welcome(c *net.UnixConn, h *shm.Hello, fds []int) (_ *connection, err error) {
	defer func() {
		if err != nil {
			shm.CloseAll(fds)
		}
	}()
	switch {
	case h.Version != shm.Version:
		return nil, fmt.Errorf("version %d: this NIC speaks %d", h.Version, shm.Version)
	case len(fds) != shm.NumFDs || !shm.IsEvent(fds[shm.FDDoorbell]) || !shm.IsEvent(fds[shm.FDDone]):
		return nil, fmt.Errorf("%d descriptors: a memory file and two event descriptors are needed, no others", len(fds))
	case h.Size <= shm.ControlBytes || h.Size > uint64(s.opt.MaxBytes):
		return nil, fmt.Errorf("%d bytes of memory: from %d to %d", h.Size, shm.ControlBytes+1, s.opt.MaxBytes)
	}
	// Without the seal the client could cut the file, and an access would end the NIC's process.
	seals, err := unix.FcntlInt(uintptr(fds[shm.FDMemory]), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, errors.New("the memory must be a memory file sealed against shrinking")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fds[shm.FDMemory], &st); err != nil || uint64(st.Size) < h.Size {
		return nil, fmt.Errorf("a memory file of %d bytes, not %d", st.Size, h.Size)
	}
	// As files that do not block they can be closed while somebody waits for them.
	if err := errors.Join(unix.SetNonblock(fds[shm.FDDoorbell], true), unix.SetNonblock(fds[shm.FDDone], true)); err != nil {
		return nil, fmt.Errorf("event descriptors: %w", err)
	}
	if err := s.enter(c, time.Duration(min(h.WaitMS, maxWaitMS))*time.Millisecond); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.leave()
		}
	}()
	m, err := shm.Map(fds[shm.FDMemory], int(h.Size))
	if err != nil {
		return nil, err
	}
	if err := shm.CheckHeader(m.Control, h.Size); err != nil {
		return nil, errors.Join(err, m.Unmap())
	}
	_ = unix.Close(fds[shm.FDMemory]) // the mapping keeps it
	k := &connection{
		node: s.node, conn: c, memory: m, silent: make(chan struct{}), told: make(chan struct{}, 1), quit: make(chan struct{}), log: s.opt.Logger,
		doorbell: os.NewFile(uintptr(fds[shm.FDDoorbell]), "doorbell"), done: os.NewFile(uintptr(fds[shm.FDDone]), "done"),
	}
	k.empty = sync.NewCond(&k.mu)
	return k, nil
}

// graceTime is how long a client waits for one that may have died a moment ago.
const graceTime = 250 * time.Millisecond

// maxWaitMS bounds what a hello may say of its wait: an hour.
const maxWaitMS = 3600_000

// enter takes the node for the client. While the one before is gone but its requests run to their end, it waits: for nine
// tenths of the client's own wait, so that the client learns why, and for as long as it takes when that is 0.
func (s *Server) enter(c *net.UnixConn, wait time.Duration) error {
	pid := peerPID(c)
	begin := time.Now()
	for grace := begin.Add(graceTime); ; time.Sleep(2 * time.Millisecond) {
		if ended(c) { // it must not take the node from the next one, even for a moment
			return errors.New("it has not waited")
		}
		s.mu.Lock()
		switch {
		case s.closed:
			s.mu.Unlock()
			return errors.New("it is being closed")
		case s.busy == 0:
			s.busy, s.leaving = pid, false
			s.mu.Unlock()
			return nil
		case !s.leaving && time.Now().After(grace):
			defer s.mu.Unlock()
			return fmt.Errorf("process %d has the node, which one process at a time can have", s.busy)
		case s.leaving && wait > 0 && time.Since(begin) > wait*9/10:
			defer s.mu.Unlock()
			return fmt.Errorf("%d requests of process %d, which is gone, are not done: they are when the other nodes' processes hand in theirs, "+
				"when the ring is formed again at another node, or at their deadline; wait longer", s.node.Status().Outstanding, s.busy)
		}
		s.mu.Unlock()
	}
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = 0
}

// ended says whether the other side has closed a connection on which it has nothing to say.
func ended(c *net.UnixConn) (is bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		is = n == 0 && err == nil || errors.Is(err, unix.ECONNRESET)
	})
	return is || err != nil
}

// peerPID is the process that has connected, as this one sees it; -1 when it cannot be told.
func peerPID(c *net.UnixConn) int {
	pid := -1
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if u, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && u.Pid > 0 {
				pid = int(u.Pid)
			}
		})
	}
	return pid
}
