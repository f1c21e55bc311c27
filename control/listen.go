package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the longest path that fits sockaddr_un with its ending zero.
const maxSocketPath = 107

// DefaultAddress is where the API is when nobody says otherwise: a Unix socket
// in /run/gradnic for root, else in the user's runtime directory.
func DefaultAddress() string {
	if os.Geteuid() == 0 {
		return "/run/gradnic/api.sock"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "gradnic", "api.sock")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("gradnic-%d", os.Geteuid()), "api.sock")
}

// SplitAddress tells a Unix socket from TCP. A path, or unix:PATH, is a Unix
// socket; tcp://HOST:PORT is TCP, which must be asked for in so many letters,
// because it has no access control.
func SplitAddress(address string) (network, where string, err error) {
	if rest, ok := strings.CutPrefix(address, "tcp://"); ok {
		if _, _, err := net.SplitHostPort(rest); err != nil {
			return "", "", fmt.Errorf("address %q: %w: write tcp://HOST:PORT", address, err)
		}
		return "tcp", rest, nil
	}
	path, isUnix := strings.CutPrefix(address, "unix:")
	if isUnix && strings.HasPrefix(path, "//") {
		path = path[2:]
	}
	if !isUnix && !strings.Contains(path, "/") && strings.Contains(path, ":") {
		return "", "", fmt.Errorf("address %q: neither a path nor tcp://HOST:PORT", address)
	}
	if path == "" {
		return "", "", fmt.Errorf("address %q: no path: write a path or tcp://HOST:PORT", address)
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", "", fmt.Errorf("address %q: %w", address, err)
	}
	if len(path) > maxSocketPath {
		return "", "", fmt.Errorf("socket %s: the path has %d bytes, a Unix socket's has at most %d: use a shorter one", path, len(path), maxSocketPath)
	}
	return "unix", path, nil
}

// inUseTimeout bounds how long Listen waits for an address that somebody has: a
// process that was killed lets go of its sockets a moment after its parent knows.
const inUseTimeout = 2 * time.Second

// errAnswers says that a socket is in use.
var errAnswers = errors.New("another gradnic answers on it: stop that one or use another path")

// Listen opens the API's address. A Unix socket has mode 0600 from its first
// moment; its directory is made (mode 0700) when it is missing, and then goes with it; a socket that a
// dead process left behind is replaced, one that somebody answers on is not. An
// address in use is refused when it still is after 2 s.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	network, where, err := SplitAddress(address)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(inUseTimeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		l, err := listenOnce(ctx, network, where)
		// ENOENT: the one that stopped has just taken its directory away.
		inUse := errors.Is(err, errAnswers) || errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.ENOENT)
		if !inUse || time.Now().Add(pause).After(until) {
			if errors.Is(err, unix.EADDRINUSE) {
				err = fmt.Errorf("%w: stop who listens there (ss -lntpx names it) or use another address", err)
			}
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

func listenOnce(ctx context.Context, network, where string) (net.Listener, error) {
	var lc net.ListenConfig
	if network == "tcp" {
		l, err := lc.Listen(ctx, network, where)
		if err != nil {
			return nil, fmt.Errorf("listen on tcp://%s: %w", where, err)
		}
		return l, nil
	}
	dir := filepath.Dir(where)
	_, missing := os.Stat(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of socket %s: %w", where, err)
	}
	if err := removeStale(ctx, where); err != nil {
		return nil, err
	}
	// unix_bind gives the file the socket's own mode: setting it before bind
	// leaves no moment in which others could connect.
	lc.Control = func(_, _ string, c syscall.RawConn) error {
		var chmod error
		if err := c.Control(func(fd uintptr) { chmod = unix.Fchmod(int(fd), 0o600) }); err != nil {
			return err
		}
		return chmod
	}
	l, err := lc.Listen(ctx, network, where)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", where, err)
	}
	info, err := os.Stat(where)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("mode is %v", info.Mode().Perm())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: others could connect: %w", where, err), l.Close())
	}
	if errors.Is(missing, fs.ErrNotExist) {
		return &ownDirectory{l, dir}, nil
	}
	return l, nil
}

// ownDirectory is a listener whose directory was made for it, and goes with it when nothing else is there.
type ownDirectory struct {
	net.Listener
	dir string
}

// Close closes the listener.
func (l *ownDirectory) Close() error {
	err := l.Listener.Close()
	_ = os.Remove(l.dir) // not empty, or gone: somebody else uses it
	return err
}

// removeStale removes a socket on which nobody answers.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("socket %s: there is something else of that name (%v): remove it or use another path", path, info.Mode())
	}
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		c.Close()
		return fmt.Errorf("socket %s: %w", path, errAnswers)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("socket %s: is it in use? %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stale socket %s: %w", path, err)
	}
	return nil
}
