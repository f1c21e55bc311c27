package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"gradnic/control"
	"gradnic/control/switchml"
	"gradnic/dataplane"
)

const (
	// The directory of the controller's socket is socketDir, the process's id, "-", and a random part.
	socketDir  = "gradnic-demo-"
	socketName = "controller.sock"
)

// serveController serves SwitchML's controller for the NIC on a Unix socket in a new directory. It listens nowhere else, so
// that demos do not meet each other or a real NIC's controller.
func serveController(nic *dataplane.NIC, o *Options) (address string, stop func() error, err error) {
	server, err := control.New(control.Options{NIC: nic, Logger: o.Logger})
	if err != nil {
		return "", nil, err
	}
	controller, err := switchml.New(switchml.Options{Jobs: server.Jobs(), Logger: o.Logger})
	if err != nil {
		return "", nil, err
	}
	if err := sweepSockets(os.TempDir()); err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", socketDir+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return "", nil, fmt.Errorf("directory of the controller's socket: %w", err)
	}
	path := filepath.Join(dir, socketName)
	l, err := net.Listen("unix", path)
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("controller: %w", err), os.RemoveAll(dir))
	}
	served := make(chan error, 1)
	go func() { served <- controller.Serve(l) }()
	return "unix://" + path, func() error {
		controller.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), stopDeadline)
		defer cancel()
		server.Stop(ctx)
		return errors.Join(<-served, os.RemoveAll(dir))
	}, nil
}

// sweepSockets removes the sockets of this user's demos that were killed. Nothing but an empty directory, or one with just
// the socket, can go.
func sweepSockets(tmp string) error {
	dirs, err := filepath.Glob(filepath.Join(tmp, socketDir+"*-*"))
	if err != nil {
		return fmt.Errorf("sweep sockets in %s: %w", tmp, err)
	}
	for _, dir := range dirs {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), socketDir), "-")
		pid, err := strconv.Atoi(number)
		if err != nil || pid <= 0 || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			continue
		}
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			continue
		}
		for _, path := range []string{filepath.Join(dir, socketName), dir} {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("sweep the socket of a killed demo: %w", err)
			}
		}
	}
	return nil
}
